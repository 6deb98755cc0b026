// The largest magnitude of what a kernel writes, found on the way (program/ops/quantize.h).
#pragma once

#include "program/ops/quantize.h"
#include "runtime/cuda/largest.h"
#include "runtime/cuda/largest_device.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {

// Each thread shows what it stores, all threads of a warp together say at the end what was largest.
class Largest {
 public:
  explicit __host__ __device__ Largest(std::uint32_t* slots)
      : slots_(slots) {}  // null: nobody asks

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
    if (slots_ != nullptr) say_largest<quantize::kSlots>(slots_, most_);
  }

 private:
  std::uint32_t* slots_;
  std::uint32_t most_ = 0;
};

}  // namespace quintet::cuda
