// Sums and maxima over the lanes of a warp and the threads of a block, always in the same order.
#pragma once

namespace quintet::cuda {

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

// Over all kThreads threads of a block; every thread gets the result. `shared` holds a value for
// each warp and may be used again at once.
template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  T total = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) total += shared[i];
  __syncthreads();
  return total;
}

}  // namespace quintet::cuda
