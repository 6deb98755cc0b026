#include "program/ops/generation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "program/ops/attention.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {
namespace {

// One row and head: the softmax is taken along the way, with the sums so far brought down whenever
// a larger score comes.
template <class T>
void attend_from_one(const T* query, const T* keys, const T* values, std::int64_t dim,
                     std::int64_t count, auto&& row_at, auto&& bias_at, T* out) {
  float sums[cached_attention::kMaxHeadDim] = {};
  float largest = -std::numeric_limits<float>::infinity(), total = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t at = row_at(j);
    float score = bias_at(j);
    for (std::int64_t c = 0; c < dim; ++c)
      score += static_cast<float>(query[c]) * static_cast<float>(keys[at + c]);
    if (score > largest) {
      const float down = std::exp(largest - score);
      total *= down;
      for (std::int64_t c = 0; c < dim; ++c) sums[c] *= down;
      largest = score;
    }
    const float weight = std::exp(score - largest);
    total += weight;
    for (std::int64_t c = 0; c < dim; ++c) sums[c] += weight * static_cast<float>(values[at + c]);
  }
  for (std::int64_t c = 0; c < dim; ++c) out[c] = T(sums[c] / total);
}

}  // namespace

void cached_attention(const OpContext& op) {
  const auto& attrs = op.attrs<CachedAttentionAttrs>();
  const Shape& shape = op.in(cached_attention::kCache).shape;
  const std::int64_t rows = shape[0], room = shape[1], dim = attrs.head_dim;
  const std::int64_t width = dim * attrs.heads;
  const std::int64_t position = *op.in_data<std::int32_t>(cached_attention::kPosition);
  const auto* origin = op.in_data<std::int32_t>(cached_attention::kRows);
  with_float_type(op.in(cached_attention::kQkv).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* qkv = op.in_data<T>(cached_attention::kQkv);
    const T* bias = op.in_data<T>(cached_attention::kBias);
    T* cache = op.out_data<T>(cached_attention::kCacheOut);
    T* out = op.out_data<T>(cached_attention::kOut);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(cache + (r * room + position) * 2 * width, qkv + r * 3 * width + width,
                  static_cast<std::size_t>(2 * width) * sizeof(T));
    }
    parallel_for(rows * attrs.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t r = i / attrs.heads, h = i % attrs.heads;
        attend_from_one<T>(
            qkv + r * 3 * width + h * dim, cache + h * dim, cache + width + h * dim, dim,
            position + 1,
            [&](std::int64_t j) {
              return ((origin == nullptr ? r : origin[r * room + j]) * room + j) * 2 * width;
            },
            [&](std::int64_t j) {
              return static_cast<float>(
                  bias[bias_bucket(j - position, true, attrs.buckets, attrs.max_distance) *
                           attrs.heads +
                       h]);
            },
            out + r * width + h * dim);
      }
    });
  });
}

void top_logits(const OpContext& op) {
  const auto& attrs = op.attrs<TopLogitsAttrs>();
  const Tensor& logits = op.in(top_logits::kLogits);
  const std::int64_t words = logits.shape.cols();
  auto* best_words = op.out_data<std::int32_t>(top_logits::kWords);
  auto* best = op.out_data<float>(top_logits::kLogProbabilities);
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* all = op.in_data<T>(top_logits::kLogits);
    parallel_for(logits.shape.rows(), 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* row = all + r * words;
        float* values = best + r * attrs.count;
        std::int32_t* ids = best_words + r * attrs.count;
        std::int32_t found = 0;
        for (std::int64_t w = 0; w < words; ++w) {
          const float value = attrs.scale * static_cast<float>(row[w]);
          if (found == attrs.count && !(value > values[found - 1])) continue;
          std::int32_t at = found < attrs.count ? found++ : found - 1;
          for (; at > 0 && value > values[at - 1]; --at) {
            values[at] = values[at - 1];
            ids[at] = ids[at - 1];
          }
          values[at] = value;
          ids[at] = static_cast<std::int32_t>(w);
        }
        const float largest = values[0];
        double total = 0;
        for (std::int64_t w = 0; w < words; ++w)
          total +=
              std::exp(static_cast<double>(attrs.scale * static_cast<float>(row[w]) - largest));
        const float log_sum = largest + static_cast<float>(std::log(total));
        for (std::int32_t i = 0; i < attrs.count; ++i) values[i] -= log_sum;
      }
    });
  });
}

}  // namespace quintet::cpu
