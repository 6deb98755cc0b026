// The largest magnitude of pairs of bf16 in registers: what largest.cuh is made of, and what
// kernels use that are built without the rest of the project.
#pragma once

#include <cstdint>

namespace quintet::cuda {

// The larger magnitudes of two pairs of bf16, as bits: those of a number that is not finite are
// larger than any other's.
__device__ __forceinline__ std::uint32_t larger_pair(std::uint32_t most, std::uint32_t pair) {
  return __vmaxu2(most, pair & 0x7fff7fffu);
}

// All threads of a warp together, each with what it found. Blocks spread over the slots.
template <unsigned kSlots>
__device__ __forceinline__ void say_largest(std::uint32_t* slots, std::uint32_t most_pair) {
  const std::uint32_t most =
      __reduce_max_sync(0xffffffffu, max(most_pair >> 16, most_pair & 0xffffu)) << 16;
  // Volatile: a slot's address is found here and not, to be kept in registers, before some loop.
  unsigned x, y, z, lane;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(y));
  asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(z));
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  const unsigned block = x + gridDim.x * (y + gridDim.y * z);
  if (lane == 0) atomicMax(slots + block % kSlots, most);
}

}  // namespace quintet::cuda
