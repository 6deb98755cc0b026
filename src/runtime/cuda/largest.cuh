// The largest magnitude of what a kernel writes, found on the way (program/ops/quantize.h).
#pragma once

#include "program/ops/quantize.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {

// The larger magnitudes of two pairs of bf16, as bits: those of a number that is not finite are
// larger than any other's.
__device__ __forceinline__ std::uint32_t larger_pair(std::uint32_t most, std::uint32_t pair) {
  return __vmaxu2(most, pair & 0x7fff7fffu);
}

// Each thread shows what it stores, all threads of a warp together say at the end what was largest.
class Largest {
 public:
  explicit Largest(std::uint32_t* slots) : slots_(slots) {}  // null: nobody asks

  template <int N>
  __device__ __forceinline__ void see(const Pack<dbf16, N>& pack) {
    if constexpr (N % 2 == 0) {
#pragma unroll
      for (int i = 0; i < N; i += 2)
        most_ = larger_pair(most_, *reinterpret_cast<const std::uint32_t*>(&pack.v[i]));
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) most_ = larger_pair(most_, __bfloat16_as_ushort(pack.v[i]));
    }
  }
  // Only bf16 is made into operands of eight bits.
  template <int N>
  __device__ __forceinline__ void see(const Pack<float, N>&) {}

  template <int N, class T>
  __device__ __forceinline__ void store(T* to, const float (&from)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.v[i] = from_float<T>(from[i]);
    store_pack<N>(to, pack);
    see<N>(pack);
  }

  __device__ __forceinline__ void say() const {
    if (slots_ == nullptr) return;
    const std::uint32_t most = __reduce_max_sync(0xffffffffu, max(most_ >> 16, most_ & 0xffffu))
                               << 16;
    if (threadIdx.x % 32 == 0) atomicMax(slots_ + blockIdx.x % quantize::kSlots, most);
  }

 private:
  std::uint32_t* slots_;
  std::uint32_t most_ = 0;
};

// The slots of an op that was asked for its result's largest, empty; null if it was not.
inline std::uint32_t* empty_slots(const OpContext& op, int slot, DType dtype) {
  auto* slots = op.out_data<std::uint32_t>(slot);
  if (slots == nullptr) return nullptr;
  QT_CHECK(dtype == DType::kBF16, "the largest magnitude of {}", name_of(dtype));
  QT_CUDA(cudaMemsetAsync(slots, 0, quantize::kSlots * sizeof *slots, op.stream()));
  return slots;
}

}  // namespace quintet::cuda
