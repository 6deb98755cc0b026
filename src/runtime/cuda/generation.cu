#include "program/ops/generation.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/plain_attention.cuh"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

constexpr int kAttentionWarps = 8;
constexpr int kPerLane = cached_attention::kMaxHeadDim / 32;

// A block for each row and head. Each warp takes every kAttentionWarps-th key, with the softmax
// taken along the way; the warps' sums are brought to the same maximum and added up in their order.
template <class T>
__global__ void __launch_bounds__(32 * kAttentionWarps)
    attend_from_one(const T* qkv, T* cache, const T* table, const std::int32_t* position_at,
                    const std::int32_t* origin, BucketTable buckets, int heads, int dim,
                    std::int64_t room, T* out) {
  const int head = static_cast<int>(blockIdx.x) % heads;
  const std::int64_t row = blockIdx.x / heads, width = std::int64_t{heads} * dim;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int position = *position_at;
  const T* mine = qkv + row * 3 * width + std::int64_t{head} * dim;
  T* const kept = cache + (row * room + position) * 2 * width + std::int64_t{head} * dim;
  // The new key and value are read from where they come from: no block waits for a write.
  for (int c = threadIdx.x; c < dim; c += blockDim.x) {
    kept[c] = mine[width + c];
    kept[width + c] = mine[2 * width + c];
  }
  float query[kPerLane], sums[kPerLane] = {};
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int c = lane + 32 * i;
    query[i] = c < dim ? to_float(mine[c]) : 0;
  }
  float largest = -INFINITY, total = 0;
  for (int j = warp; j <= position; j += kAttentionWarps) {
    const std::int64_t from = origin == nullptr ? row : origin[row * room + j];
    const T* key = j == position ? mine + width
                                 : cache + (from * room + j) * 2 * width + std::int64_t{head} * dim;
    float score = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int c = lane + 32 * i;
      if (c < dim) score += query[i] * to_float(key[c]);
    }
    score = warp_sum(score) + to_float(table[buckets.of(j - position, true) * heads + head]);
    const float top = fmaxf(largest, score);
    const float down = __expf(largest - top), weight = __expf(score - top);
    total = total * down + weight;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int c = lane + 32 * i;
      if (c < dim) sums[i] = sums[i] * down + weight * to_float(key[width + c]);
    }
    largest = top;
  }
  __shared__ float warp_largest[kAttentionWarps], warp_total[kAttentionWarps];
  __shared__ float warp_sums[kAttentionWarps][cached_attention::kMaxHeadDim];
  if (lane == 0) {
    warp_largest[warp] = largest;
    warp_total[warp] = total;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) warp_sums[warp][lane + 32 * i] = sums[i];
  __syncthreads();
  float top = -INFINITY;
  for (int w = 0; w < kAttentionWarps; ++w) top = fmaxf(top, warp_largest[w]);
  for (int c = threadIdx.x; c < dim; c += blockDim.x) {
    float sum = 0, all = 0;
    for (int w = 0; w < kAttentionWarps; ++w) {
      const float down = __expf(warp_largest[w] - top);  // of a warp without a key: 0
      sum += down * warp_sums[w][c];
      all += down * warp_total[w];
    }
    out[row * width + std::int64_t{head} * dim + c] = from_float<T>(sum / all);
  }
}

constexpr int kTopThreads = 1024;

struct Best {
  float value;
  int word;
};
// Larger first; of equal ones the lower word.
__device__ __forceinline__ bool before(Best a, Best b) {
  return a.value > b.value || (a.value == b.value && a.word < b.word);
}
__device__ __forceinline__ Best first_of_warp(Best best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Best other{__shfl_xor_sync(~0u, best.value, offset),
                     __shfl_xor_sync(~0u, best.word, offset)};
    if (before(other, best)) best = other;
  }
  return best;
}

// A block for each row. Every thread knows the best of the words it looks at; the best of all is
// taken `count` times, and the thread it came from looks for its next.
template <class T>
__global__ void __launch_bounds__(kTopThreads)
    take_best(const T* logits, int words, int count, float scale, std::int32_t* best_words,
              float* best_values) {
  __shared__ Best of_warps[kTopThreads / 32];
  __shared__ float shared[kTopThreads / 32];
  const T* row = logits + std::int64_t{blockIdx.x} * words;
  const auto next_after = [&](Best last) {
    Best best{-INFINITY, INT_MAX};
    for (int w = threadIdx.x; w < words; w += kTopThreads) {
      const Best here{scale * to_float(row[w]), w};
      if (before(last, here) && before(here, best)) best = here;
    }
    return best;
  };
  Best mine = next_after({INFINITY, -1});
  float largest = 0, log_sum = 0;
  for (int i = 0; i < count; ++i) {
    const Best of_warp = first_of_warp(mine);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of_warp;
    __syncthreads();
    Best best = of_warps[0];
    for (int w = 1; w < kTopThreads / 32; ++w)
      if (before(of_warps[w], best)) best = of_warps[w];
    __syncthreads();
    if (i == 0) {
      largest = best.value;
      float sum = 0;
      for (int w = threadIdx.x; w < words; w += kTopThreads)
        sum += __expf(scale * to_float(row[w]) - largest);
      log_sum = largest + logf(block_sum<kTopThreads>(sum, shared));
    }
    if (threadIdx.x == 0) {
      best_words[std::int64_t{blockIdx.x} * count + i] = best.word;
      best_values[std::int64_t{blockIdx.x} * count + i] = best.value - log_sum;
    }
    if (mine.word == best.word && i + 1 < count) mine = next_after(mine);
  }
}

}  // namespace

void cached_attention(const OpContext& op) {
  const auto& attrs = op.attrs<CachedAttentionAttrs>();
  const Shape& shape = op.in(cached_attention::kCache).shape;
  const BucketTable buckets = bucket_table({.heads = attrs.heads,
                                            .head_dim = attrs.head_dim,
                                            .causal = true,
                                            .buckets = attrs.buckets,
                                            .max_distance = attrs.max_distance});
  with_device_type(op.in(cached_attention::kQkv).dtype, [&]<class T>(T) {
    attend_from_one<T>
        <<<static_cast<unsigned>(shape[0] * attrs.heads), 32 * kAttentionWarps, 0, op.stream()>>>(
            op.in_data<T>(cached_attention::kQkv), op.out_data<T>(cached_attention::kCacheOut),
            op.in_data<T>(cached_attention::kBias),
            op.in_data<std::int32_t>(cached_attention::kPosition),
            op.in_data<std::int32_t>(cached_attention::kRows), buckets, attrs.heads, attrs.head_dim,
            shape[1], op.out_data<T>(cached_attention::kOut));
    QT_LAUNCHED();
  });
}

void top_logits(const OpContext& op) {
  const auto& attrs = op.attrs<TopLogitsAttrs>();
  const Tensor& logits = op.in(top_logits::kLogits);
  with_device_type(logits.dtype, [&]<class T>(T) {
    take_best<T><<<static_cast<unsigned>(logits.shape.rows()), kTopThreads, 0, op.stream()>>>(
        op.in_data<T>(top_logits::kLogits), static_cast<int>(logits.shape.cols()), attrs.count,
        attrs.scale, op.out_data<std::int32_t>(top_logits::kWords),
        op.out_data<float>(top_logits::kLogProbabilities));
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
