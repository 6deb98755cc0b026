// The small kernels before and after the main one of the Hopper attention backward: row sums that
// it reads, and the reduction of the bias's gradient that it leaves. Included by
// attention_sm90_backward.cu only.
#pragma once

#include <cmath>

#include "runtime/cuda/attention_sm90_common.h"
#include "runtime/cuda/attention_sm90_device.cuh"

namespace quintet::cuda::sm90 {
namespace {

// D = rowsum(dO * O) of each head, and lse * log2(e), in the order in which the main kernel reads
// them; queries past the end get an lse that makes their weights 0. A block has 32 queries of 8
// heads, and eight threads per row: reads and writes are both of whole lines.
constexpr int kStatsQueries = 32, kStatsHeads = 8, kStatsThreads = 256;

__device__ __forceinline__ float dot8(uint4 x, uint4 y) {
  const std::uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(__uint_as_float(xs[i] << 16), __uint_as_float(ys[i] << 16), sum);
    sum = fmaf(__uint_as_float(xs[i] & 0xffff0000u), __uint_as_float(ys[i] & 0xffff0000u), sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kStatsThreads)
    stats_kernel(const __nv_bfloat16* __restrict__ d_out, const __nv_bfloat16* __restrict__ out,
                 const float* __restrict__ lse, int heads, int queries, int padded_queries,
                 float* __restrict__ stats) {
  __shared__ float sums[kStatsHeads][kStatsQueries];
  constexpr int kRowThreads = kStatsHeads * 8, kRows = kStatsThreads / kRowThreads;
  constexpr int kSteps = kStatsQueries / kRows;
  const int query0 = blockIdx.x * kStatsQueries, head0 = blockIdx.y * kStatsHeads;
  const int sample = blockIdx.z, thread = threadIdx.x;
  const int local_head = thread % kRowThreads / 8, row = thread / kRowThreads;
  const bool has_head = head0 + local_head < heads;
  // What the thread will write: a warp has a head's queries.
  const int head = head0 + thread / 32, own_query = query0 + thread % 32;
  const std::int64_t item = std::int64_t{sample} * heads + head;
  const bool known = head < heads && own_query < queries;
  const float own_lse = known ? lse[item * queries + own_query] * kLog2e : INFINITY;

  uint4 x[kSteps] = {}, y[kSteps] = {};
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int query = query0 + i * kRows + row;
    if (!has_head || query >= queries) continue;
    const std::int64_t at = (std::int64_t{sample} * queries + query) * heads * kHeadDim +
                            head0 * kHeadDim + thread % kRowThreads * 8;
    x[i] = *reinterpret_cast<const uint4*>(d_out + at);
    y[i] = *reinterpret_cast<const uint4*>(out + at);
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    float sum = dot8(x[i], y[i]);
    for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (thread % 8 == 0) sums[local_head][i * kRows + row] = sum;
  }
  __syncthreads();
  if (head >= heads) return;
  // Pairs of queries: {lse, lse, D, D}.
  float* to = stats + (item * padded_queries + own_query / 2 * 2) * 2 + own_query % 2;
  to[0] = own_lse;
  to[2] = sums[thread / 32][thread % 32];
}

// Sums over samples, then over the distances of each bucket; one block per head. far: sums beyond
// the band, [b, h, 8].
template <class T>
__global__ void __launch_bounds__(1024)
    bias_gradient_kernel(const __grid_constant__ BiasParams bias, const float* __restrict__ sums,
                         const float2* __restrict__ far, int batch, int heads, int buckets,
                         bool add, T* __restrict__ d_bias) {
  __shared__ float halves[2][kDistances];
  __shared__ float far_sums[2][32];
  __shared__ std::uint8_t bucket_of[kDistances];
  const int head = blockIdx.x, part = threadIdx.x / kDistances, distance = threadIdx.x % kDistances;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = 0;
#pragma unroll 8
  for (int b = part; b < batch; b += 2) {
    sum += sums[(std::int64_t{b} * heads + head) * kDistances + distance];
  }
  halves[part][distance] = sum;
  bucket_of[distance] = static_cast<std::uint8_t>(bias_bucket_of(bias, distance - kDistances / 2));
  float2 of_far = {};
  for (int i = threadIdx.x; i < batch * kMultiplyWarps; i += 1024) {
    const float2 x = far[(std::int64_t{i / kMultiplyWarps} * heads + head) * kMultiplyWarps +
                         i % kMultiplyWarps];
    of_far = make_float2(of_far.x + x.x, of_far.y + x.y);
  }
  for (int step = 1; step < 32; step *= 2) {
    of_far.x += __shfl_xor_sync(~0u, of_far.x, step);
    of_far.y += __shfl_xor_sync(~0u, of_far.y, step);
  }
  if (lane == 0) {
    far_sums[0][warp] = of_far.x;
    far_sums[1][warp] = of_far.y;
  }
  __syncthreads();
  const int buckets_of_far[2] = {bucket_of[0], bucket_of[kDistances - 1]};
  for (int bucket = warp; bucket < buckets; bucket += 32) {
    float of_bucket = 0;
    for (int i = lane; i < kDistances; i += 32) {
      if (bucket_of[i] == bucket) of_bucket += halves[0][i] + halves[1][i];
    }
    for (int side = 0; side < 2; ++side) {
      if (bucket == buckets_of_far[side]) of_bucket += far_sums[side][lane];
    }
    for (int step = 1; step < 32; step *= 2) of_bucket += __shfl_xor_sync(~0u, of_bucket, step);
    if (lane == 0) {
      T& to = d_bias[bucket * heads + head];
      to = static_cast<T>(add ? static_cast<float>(to) + of_bucket : of_bucket);
    }
  }
}

}  // namespace
}  // namespace quintet::cuda::sm90
