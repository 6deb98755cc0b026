#include "program/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "program/op_decl.h"
#include "runtime/cpu/dropout_mask.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/largest.h"
#include "runtime/cpu/vector_math.h"

// One (sequence, head) at a time, queries in blocks: scores = Q K^T for a block, softmax row by
// row, times V. Distances key - query run from -(queries - 1) to keys - 1; position d + queries - 1
// of a table holds distance d, so the biases of one row of scores are a contiguous piece of it.

namespace quintet::cpu {
namespace {

// Where q, k and v (or their gradients) of an attention lie: rows of `ld` elements, heads side by
// side.
template <class T>
struct Projections {
  T *q, *k, *v;
  std::int64_t q_ld, kv_ld;
};

// q holds [q | k | v] in self-attention; kv holds [k | v] in cross-attention.
template <class T>
Projections<T> split(T* q, T* kv, std::int64_t width) {
  if (kv == nullptr) return {q, q + width, q + 2 * width, 3 * width, 3 * width};
  return {q, kv, kv + width, width, 2 * width};
}

struct Rows {
  const float* data;
  std::int64_t ld;
};

// Rows of one head as float32: where they are, or widened into `copy`.
template <class T>
Rows load(const T* from, std::int64_t ld, std::int64_t rows, std::int64_t dim, float* copy) {
  if constexpr (std::is_same_v<T, float>) {
    return {from, ld};
  } else {
    for (std::int64_t r = 0; r < rows; ++r) widen(from + r * ld, copy + r * dim, dim);
    return {copy, dim};
  }
}

struct MutableRows {
  float* data;
  std::int64_t ld;
};

// Where to compute rows of one head: in place, or in `copy`, from which store() rounds them.
template <class T>
MutableRows target(T* to, std::int64_t ld, std::int64_t dim, float* copy) {
  if constexpr (std::is_same_v<T, float>) {
    return {to, ld};
  } else {
    return {copy, dim};
  }
}
template <class T>
void store(MutableRows rows, std::int64_t count, std::int64_t dim, T* to, std::int64_t ld) {
  if constexpr (!std::is_same_v<T, float>) {
    for (std::int64_t r = 0; r < count; ++r) narrow(rows.data + r * rows.ld, to + r * ld, dim);
  }
}
void clear(MutableRows rows, std::int64_t count, std::int64_t dim) {
  for (std::int64_t r = 0; r < count; ++r) {
    std::memset(rows.data + r * rows.ld, 0, static_cast<std::size_t>(dim) * sizeof(float));
  }
}

// The score of a key that a query may not see.
constexpr float kHidden = -3e38f;

// What the forward and the backward share: sizes, masks, the bias by distance.
struct Shared {
  const AttentionAttrs& attrs;
  std::int64_t batch, queries, keys, dim, width;
  const std::int32_t *lengths, *query_segments, *key_segments;  // null: no such mask
  std::int32_t* buckets;                                        // by distance, null without bias
  std::int64_t step;

  // The slots of the op's optional inputs.
  struct Masks {
    int lengths, step, query_segments, key_segments;
  };
  Shared(const OpContext& op, const Shape& q, const Shape& kv, const Masks& masks, bool biased)
      : attrs(op.attrs<AttentionAttrs>()),
        batch(q[0]),
        queries(q[1]),
        keys(kv[1]),
        dim(attrs.head_dim),
        width(std::int64_t{attrs.heads} * attrs.head_dim),
        lengths(op.in_data<std::int32_t>(masks.lengths)),
        query_segments(op.in_data<std::int32_t>(masks.query_segments)),
        key_segments(op.in_data<std::int32_t>(masks.key_segments)),
        buckets(biased ? reinterpret_cast<std::int32_t*>(op.scratch()) : nullptr),
        step(op.has_in(masks.step) ? *op.in_data<std::int64_t>(masks.step) : 0) {
    if (buckets == nullptr) return;
    for (std::int64_t i = 0; i < queries + keys - 1; ++i) {
      buckets[i] = bias_bucket(i - (queries - 1), attrs.causal, attrs.buckets, attrs.max_distance);
    }
  }

  // Whether there is enough to do for more than one thread.
  bool worth_sharing() const { return batch * queries * keys * width > (1 << 20); }
  // Keys that a sequence has.
  std::int64_t valid_keys(std::int64_t b) const {
    return lengths == nullptr ? keys : std::clamp<std::int64_t>(lengths[b], 0, keys);
  }
  // Keys that a query may see, of `valid` ones.
  std::int64_t seen(std::int64_t query, std::int64_t valid) const {
    return attrs.causal ? std::min(valid, query + 1) : valid;
  }
  // Calls hide(key) for every key of the first `seen` that is not of the query's segment. Returns
  // whether one is left.
  template <class Hide>
  bool hide_other_segments(std::int64_t b, std::int64_t query, std::int64_t seen,
                           const Hide& hide) const {
    if (query_segments == nullptr) return seen > 0;
    const std::int32_t mine = query_segments[b * queries + query];
    const std::int32_t* of_keys = key_segments + b * keys;
    bool left = false;
    for (std::int64_t j = 0; j < seen; ++j) {
      if (of_keys[j] == mine) {
        left = true;
      } else {
        hide(j);
      }
    }
    return left;
  }
  template <class T>
  void expand_bias(const T* table, std::int64_t head, float* by_distance) const {
    for (std::int64_t i = 0; i < queries + keys - 1; ++i) {
      by_distance[i] = static_cast<float>(table[buckets[i] * attrs.heads + head]);
    }
  }
  // Global index of the first weight of a row, for the dropout mask.
  std::int64_t mask_row(std::int64_t b, std::int64_t head, std::int64_t query) const {
    const std::int64_t sequence_head =
        (attrs.first_sample + b) * attrs.global_heads + attrs.first_head + head;
    return (sequence_head * queries + query) * keys;
  }
};

template <class T>
void forward(const OpContext& op) {
  const bool cross = op.has_in(attention::kKv);
  const Shape& q_shape = op.in(attention::kQ).shape;
  const Shape& kv_shape = cross ? op.in(attention::kKv).shape : q_shape;
  const auto* table = op.in_data<T>(attention::kBias);
  const Shared s(
      op, q_shape, kv_shape,
      {attention::kLengths, attention::kStep, attention::kQuerySegments, attention::kKeySegments},
      table != nullptr);
  const DropoutMask mask(s.attrs.dropout_rate, s.attrs.dropout_seed, s.attrs.dropout_site, s.step);
  const auto in = split(op.in_data<T>(attention::kQ), op.in_data<T>(attention::kKv), s.width);
  auto* out = op.out_data<T>(attention::kOut);
  auto* lse = op.out_data<float>(attention::kLogSumExp);
  const auto layout = attention::Scratch::forward(s.queries, s.keys, s.dim);
  float* threads = op.scratch() + attention::bucket_floats(s.queries, s.keys);

  parallel_items(s.batch * s.attrs.heads, s.worth_sharing(), [&](std::int64_t item, int thread) {
    const std::int64_t b = item / s.attrs.heads, h = item % s.attrs.heads;
    float* scores = threads + thread * (layout.bytes() / 4);
    float* bias = scores + layout.scores;
    float* factors = bias + layout.distances;
    float* copies = factors + layout.factors;
    const std::int64_t valid = s.valid_keys(b);
    const std::int64_t head = h * s.dim;
    const Rows k = load(in.k + b * s.keys * in.kv_ld + head, in.kv_ld, valid, s.dim, copies);
    const Rows v =
        load(in.v + b * s.keys * in.kv_ld + head, in.kv_ld, valid, s.dim, copies + s.keys * s.dim);
    float* block_copy = copies + 2 * s.keys * s.dim;
    if (table != nullptr) s.expand_bias(table, h, bias);

    for (std::int64_t q0 = 0; q0 < s.queries; q0 += attention::kQueryBlock) {
      const std::int64_t rows = std::min(attention::kQueryBlock, s.queries - q0);
      const std::int64_t cols = s.seen(q0 + rows - 1, valid);
      const T* q_rows = in.q + (b * s.queries + q0) * in.q_ld + head;
      const Rows q = load(q_rows, in.q_ld, rows, s.dim, block_copy);
      T* out_rows = out + (b * s.queries + q0) * s.width + head;
      const MutableRows o = target(out_rows, s.width, s.dim, block_copy + rows * s.dim);
      gemm(false, true, rows, cols, s.dim, 1, q.data, q.ld, k.data, k.ld, 0, scores, cols);
      float inverse[attention::kQueryBlock];
      for (std::int64_t r = 0; r < rows; ++r) {
        float* row = scores + r * cols;
        const std::int64_t query = q0 + r, seen = s.seen(query, valid);
        if (table != nullptr) {
          const float* bias_row = bias + (s.queries - 1) - query;
#pragma omp simd
          for (std::int64_t j = 0; j < seen; ++j) row[j] += bias_row[j];
        }
        const bool any =
            s.hide_other_segments(b, query, seen, [row](std::int64_t j) { row[j] = kHidden; });
        float max = kHidden;
#pragma omp simd reduction(max : max)
        for (std::int64_t j = 0; j < seen; ++j) max = std::max(max, row[j]);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = 0; j < seen; ++j) {
          row[j] = row[j] == kHidden ? 0.0f : fast_exp(row[j] - max);
          sum += row[j];
        }
        inverse[r] = any ? 1.0f / sum : 0.0f;
        lse[item * s.queries + query] = any ? max + std::log(sum) : 0.0f;
        std::fill(row + seen, row + cols, 0.0f);
        if (s.attrs.dropout_rate > 0) {
          mask.factors(s.mask_row(b, h, query), seen, factors);
#pragma omp simd
          for (std::int64_t j = 0; j < seen; ++j) row[j] *= factors[j];
        }
      }
      gemm(false, false, rows, s.dim, cols, 1, scores, cols, v.data, v.ld, 0, o.data, o.ld);
      for (std::int64_t r = 0; r < rows; ++r) {
        float* row = o.data + r * o.ld;
        if (cols == 0) std::fill(row, row + s.dim, 0.0f);
#pragma omp simd
        for (std::int64_t i = 0; i < s.dim; ++i) row[i] *= inverse[r];
      }
      store(o, rows, s.dim, out_rows, s.width);
    }
  });
}

// With P the softmax, M the dropout factors and D = rowsum(dO * O):
//   dV = (P M)^T dO,  dS = P (M (dO V^T) - D),  dQ = dS K,  dK = dS^T Q,  d(bias)[distance] = sum
//   of dS.
template <class T, class G>
void backward(const OpContext& op) {
  using namespace attention_backward;
  const bool cross = op.has_in(kKv);
  const Shape& q_shape = op.in(kQ).shape;
  const Shape& kv_shape = cross ? op.in(kKv).shape : q_shape;
  const auto* table = op.in_data<T>(kBias);
  const Shared s(op, q_shape, kv_shape, {kLengths, kStep, kQuerySegments, kKeySegments},
                 table != nullptr);
  const DropoutMask mask(s.attrs.dropout_rate, s.attrs.dropout_seed, s.attrs.dropout_site, s.step);
  const auto in = split(op.in_data<T>(kQ), op.in_data<T>(kKv), s.width);
  const auto grad = split(op.out_data<T>(kDQ), op.out_data<T>(kDKv), s.width);
  const auto* d_out = op.in_data<T>(kDOut);
  const auto* out = op.in_data<T>(kOut);
  const auto* lse = op.in_data<float>(kLogSumExp);
  const auto layout = attention::Scratch::backward(s.queries, s.keys, s.dim);
  float* bucket_sums =
      op.scratch() + attention::bucket_floats(s.queries, s.keys);  // [b, heads, buckets]
  float* threads = bucket_sums + aligned(s.batch * s.attrs.heads * s.attrs.buckets * 4) / 4;

  parallel_items(s.batch * s.attrs.heads, s.worth_sharing(), [&](std::int64_t item, int thread) {
    const std::int64_t b = item / s.attrs.heads, h = item % s.attrs.heads;
    float* scores = threads + thread * (layout.bytes() / 4);
    float* d_scores = scores + layout.scores / 2;
    float* bias = scores + layout.scores;
    float* d_bias = bias + layout.distances / 2;
    float* factors = bias + layout.distances;
    float* copies = factors + layout.factors;
    float* block_copies = copies + 4 * s.keys * s.dim;
    const std::int64_t valid = s.valid_keys(b);
    const std::int64_t head = h * s.dim, kv_at = b * s.keys * in.kv_ld + head;
    const std::int64_t kv_size = s.keys * s.dim;
    const Rows k = load(in.k + kv_at, in.kv_ld, valid, s.dim, copies);
    const Rows v = load(in.v + kv_at, in.kv_ld, valid, s.dim, copies + kv_size);
    const MutableRows dk = target(grad.k + kv_at, grad.kv_ld, s.dim, copies + 2 * kv_size);
    const MutableRows dv = target(grad.v + kv_at, grad.kv_ld, s.dim, copies + 3 * kv_size);
    clear(dk, s.keys, s.dim);
    clear(dv, s.keys, s.dim);
    if (table != nullptr) {
      s.expand_bias(table, h, bias);
      std::fill(d_bias, d_bias + s.queries + s.keys, 0.0f);
    }

    for (std::int64_t q0 = 0; q0 < s.queries; q0 += attention::kQueryBlock) {
      const std::int64_t rows = std::min(attention::kQueryBlock, s.queries - q0);
      const std::int64_t cols = s.seen(q0 + rows - 1, valid);
      const std::int64_t q_at = (b * s.queries + q0) * in.q_ld + head;
      const std::int64_t o_at = (b * s.queries + q0) * s.width + head;
      const std::int64_t block = rows * s.dim;
      const Rows q = load(in.q + q_at, in.q_ld, rows, s.dim, block_copies);
      const Rows d_o = load(d_out + o_at, s.width, rows, s.dim, block_copies + block);
      const MutableRows dq = target(grad.q + q_at, grad.q_ld, s.dim, block_copies + 2 * block);
      gemm(false, true, rows, cols, s.dim, 1, q.data, q.ld, k.data, k.ld, 0, scores, cols);
      gemm(false, true, rows, cols, s.dim, 1, d_o.data, d_o.ld, v.data, v.ld, 0, d_scores, cols);
      for (std::int64_t r = 0; r < rows; ++r) {
        float *row = scores + r * cols, *d_row = d_scores + r * cols;
        const std::int64_t query = q0 + r, seen = s.seen(query, valid);
        const float row_lse = lse[item * s.queries + query];
        float delta = 0;
        const T* o_row = out + o_at + r * s.width;
        const float* do_row = d_o.data + r * d_o.ld;
#pragma omp simd reduction(+ : delta)
        for (std::int64_t i = 0; i < s.dim; ++i) delta += do_row[i] * static_cast<float>(o_row[i]);
        const float* bias_row = table == nullptr ? nullptr : bias + (s.queries - 1) - query;
        if (bias_row != nullptr) {
#pragma omp simd
          for (std::int64_t j = 0; j < seen; ++j) row[j] += bias_row[j];
        }
        if (s.attrs.dropout_rate > 0) {
          mask.factors(s.mask_row(b, h, query), seen, factors);
#pragma omp simd
          for (std::int64_t j = 0; j < seen; ++j) {
            const float p = fast_exp(row[j] - row_lse);
            row[j] = p * factors[j];
            d_row[j] = p * (d_row[j] * factors[j] - delta);
          }
        } else {
#pragma omp simd
          for (std::int64_t j = 0; j < seen; ++j) {
            const float p = fast_exp(row[j] - row_lse);
            row[j] = p;
            d_row[j] = p * (d_row[j] - delta);
          }
        }
        s.hide_other_segments(b, query, seen,
                              [row, d_row](std::int64_t j) { row[j] = d_row[j] = 0; });
        std::fill(row + seen, row + cols, 0.0f);
        std::fill(d_row + seen, d_row + cols, 0.0f);
        if (bias_row != nullptr) {
          float* d_bias_row = d_bias + (s.queries - 1) - query;
#pragma omp simd
          for (std::int64_t j = 0; j < seen; ++j) d_bias_row[j] += d_row[j];
        }
      }
      if (cols == 0) {
        clear(dq, rows, s.dim);
      } else {
        gemm(true, false, cols, s.dim, rows, 1, scores, cols, d_o.data, d_o.ld, 1, dv.data, dv.ld);
        gemm(false, false, rows, s.dim, cols, 1, d_scores, cols, k.data, k.ld, 0, dq.data, dq.ld);
        gemm(true, false, cols, s.dim, rows, 1, d_scores, cols, q.data, q.ld, 1, dk.data, dk.ld);
      }
      store(dq, rows, s.dim, grad.q + q_at, grad.q_ld);
    }
    store(dk, s.keys, s.dim, grad.k + kv_at, grad.kv_ld);
    store(dv, s.keys, s.dim, grad.v + kv_at, grad.kv_ld);
    if (table != nullptr) {
      float* sums = bucket_sums + item * s.attrs.buckets;
      std::fill(sums, sums + s.attrs.buckets, 0.0f);
      for (std::int64_t i = 0; i < s.queries + s.keys - 1; ++i) sums[s.buckets[i]] += d_bias[i];
    }
  });

  if (table == nullptr) return;
  auto* d_table = op.out_data<G>(kDBias);
  const bool accumulate = op.has_in(kDBiasAddend);
  for (std::int64_t bucket = 0; bucket < s.attrs.buckets; ++bucket) {
    for (std::int64_t h = 0; h < s.attrs.heads; ++h) {
      G& entry = d_table[bucket * s.attrs.heads + h];
      float sum = accumulate ? static_cast<float>(entry) : 0.0f;
      for (std::int64_t b = 0; b < s.batch; ++b) {
        sum += bucket_sums[(b * s.attrs.heads + h) * s.attrs.buckets + bucket];
      }
      entry = static_cast<G>(sum);
    }
  }
}

}  // namespace

void attention(const OpContext& op) {
  with_float_type(op.in(attention::kQ).dtype, [&]<class T>(T) {
    forward<T>(op);
    leave_largest<T>(op, attention::kOut, attention::kLargest);
  });
}

void attention_backward(const OpContext& op) {
  const DType dtype = op.in(attention_backward::kQ).dtype;
  const DType grad_dtype =
      op.has_out(attention_backward::kDBias) ? op.out(attention_backward::kDBias).dtype : dtype;
  with_float_type(dtype, [&]<class T>(T) {
    with_float_type(grad_dtype, [&]<class G>(G) { backward<T, G>(op); });
    leave_largest<T>(op, attention_backward::kDQ, attention_backward::kDQLargest);
    leave_largest<T>(op, attention_backward::kDKv, attention_backward::kDKvLargest);
  });
}

}  // namespace quintet::cpu
