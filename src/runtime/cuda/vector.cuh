// Device types and 16-byte accesses. Kernels work on packs of N neighbouring elements: as many as
// fit 16 bytes where addresses and sizes allow it, one otherwise.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "base/bf16.h"
#include "base/dtype.h"

namespace quintet::cuda {

using dbf16 = __nv_bfloat16;

// Elements of T in 16 bytes.
template <class T>
inline constexpr int kWide = static_cast<int>(16 / sizeof(T));

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(dbf16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return __float2bfloat16_rn(x);
  }
}

template <int N, class T>
__device__ __forceinline__ void load_floats(const T* from, float (&to)[N]) {
  const Pack<T, N> pack = load_pack<N>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.v[i]);
}
template <int N, class T>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.v[i] = from_float<T>(from[i]);
  store_pack<N>(to, pack);
}

// Calls body(T{}) with the device's type of a floating dtype.
template <class Body>
decltype(auto) with_device_type(DType dtype, Body&& body) {
  QT_CHECK(is_float(dtype), "expected a floating dtype, got {}", name_of(dtype));
  return dtype == DType::kF32 ? body(float{}) : body(dbf16{});
}

// Whether an address may be read in packs of 16 bytes.
inline bool is_wide(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Calls body.template operator()<N>(first element) over [0, count) in packs of N, and one by one
// over what is left.
template <int N, class Body>
__global__ void for_packs(std::int64_t count, Body body) {
  const std::int64_t packs = count / N;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < packs; i += stride) body.template operator()<N>(i * N);
  for (std::int64_t i = packs * N + first; i < count; i += stride) body.template operator()<1>(i);
}

// Blocks for `items` independent items, one a thread: enough to fill the device, no more than eight
// waves of it.
inline unsigned grid_for(std::int64_t items, int threads, int multiprocessors) {
  const std::int64_t blocks = ceil_div(items > 0 ? items : 1, threads);
  const std::int64_t most = std::int64_t{multiprocessors} * (2048 / threads) * 8;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace quintet::cuda
