// What the plain attention's forward and backward kernels share: operands, masks, bias, tiles.
//
// A block of 256 threads works on tiles of 64 queries x 64 keys in float32. Thread (ty, tx) = (id /
// 16, id % 16) owns rows 4 ty .. 4 ty + 3 and columns tx, tx + 16, ... of every tile: neighbouring
// threads read neighbouring banks, and a row's 16 threads are half a warp.
#pragma once

#include "program/ops/attention.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/philox.cuh"
#include "runtime/cuda/scratch.h"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {

inline constexpr int kTile = static_cast<int>(attention::kDeviceTile), kAttentionThreads = 256;
inline constexpr int kDiagonals = 2 * kTile - 1;
inline constexpr int kMaxBucketDistance = 1024, kMaxBuckets = 256;

// The bucket of |key - query|, computed on the host, where the last bit of a logarithm is the
// reference's; beyond the table the last entry holds.
struct BucketTable {
  std::uint8_t bucket[kMaxBucketDistance];
  int last, side;  // side: added where key > query

  __device__ __forceinline__ int of(int distance, bool causal) const {
    const int n = causal ? max(-distance, 0) : abs(distance);
    return bucket[min(n, last)] + (!causal && distance > 0 ? side : 0);
  }
};

inline BucketTable bucket_table(const AttentionAttrs& attrs) {
  BucketTable table{};
  if (attrs.buckets == 0) return table;
  QT_CHECK(attrs.max_distance < kMaxBucketDistance && attrs.buckets <= kMaxBuckets,
           "a relative bias over {} tokens in {} buckets", attrs.max_distance, attrs.buckets);
  table.last = attrs.max_distance;
  table.side = attrs.causal ? 0 : attrs.buckets / 2;
  for (int n = 0; n <= table.last; ++n) {
    table.bucket[n] =
        static_cast<std::uint8_t>(bias_bucket(-n, attrs.causal, attrs.buckets, attrs.max_distance));
  }
  return table;
}

// Rows of one head: element [row][i] is data[row * ld + i].
template <class T>
struct HeadRows {
  T* data;
  std::int64_t ld;
};

template <class T>
struct AttentionArgs {
  const T *q, *k, *v, *table;
  std::int64_t q_ld, kv_ld;
  const std::int32_t* lengths;
  const std::int32_t *query_segments, *key_segments;  // null: rows are not packed
  const std::int64_t* step;
  int heads, queries, keys, dim, first_head, global_heads;
  std::int64_t first_sample;
  bool causal, drops;
  DropoutMask mask;
  BucketTable buckets;

  __device__ int valid_keys(int b) const {
    return lengths == nullptr ? keys : max(0, min(lengths[b], keys));
  }
  __device__ int seen(int query, int valid) const { return causal ? min(valid, query + 1) : valid; }
  // Whether a key that the query may see by its position is of its segment, too.
  __device__ bool same_segment(int b, int query, int key) const {
    return query_segments == nullptr || query_segments[std::int64_t{b} * queries + query] ==
                                            key_segments[std::int64_t{b} * keys + key];
  }
  __device__ std::int64_t mask_row(int b, int h, int query) const {
    const std::int64_t head = (first_sample + b) * global_heads + first_head + h;
    return (head * queries + query) * keys;
  }
  // First row of sequence b, columns of head h.
  __device__ HeadRows<const T> q_rows(int b, int h) const {
    return {q + std::int64_t{b} * queries * q_ld + h * dim, q_ld};
  }
  __device__ HeadRows<const T> k_rows(int b, int h) const {
    return {k + std::int64_t{b} * keys * kv_ld + h * dim, kv_ld};
  }
  __device__ HeadRows<const T> v_rows(int b, int h) const {
    return {v + std::int64_t{b} * keys * kv_ld + h * dim, kv_ld};
  }
};

// q holds [q | k | v] in self-attention; kv holds [k | v] in cross-attention.
struct AttentionSlots {
  int q, kv, bias, lengths, step, query_segments, key_segments;
};
template <class T>
AttentionArgs<T> attention_args(const OpContext& op, const AttentionSlots& slots) {
  const auto& attrs = op.attrs<AttentionAttrs>();
  QT_CHECK(attrs.head_dim <= 128, "attention heads of {} elements; at most 128", attrs.head_dim);
  const std::int64_t width = std::int64_t{attrs.heads} * attrs.head_dim;
  const bool cross = op.has_in(slots.kv);
  const Shape& q_shape = op.in(slots.q).shape;
  const Shape& kv_shape = cross ? op.in(slots.kv).shape : q_shape;
  const T* q = op.in_data<T>(slots.q);
  const T* kv = cross ? op.in_data<T>(slots.kv) : q + width;
  return {q,
          kv,
          kv + width,
          op.in_data<T>(slots.bias),
          cross ? width : 3 * width,
          cross ? 2 * width : 3 * width,
          op.in_data<std::int32_t>(slots.lengths),
          op.in_data<std::int32_t>(slots.query_segments),
          op.in_data<std::int32_t>(slots.key_segments),
          op.in_data<std::int64_t>(slots.step),
          attrs.heads,
          static_cast<int>(q_shape[1]),
          static_cast<int>(kv_shape[1]),
          attrs.head_dim,
          attrs.first_head,
          attrs.global_heads,
          attrs.first_sample,
          attrs.causal,
          attrs.dropout_rate > 0,
          DropoutMask(attrs.dropout_rate, attrs.dropout_seed, attrs.dropout_site),
          bucket_table(attrs)};
}

// Rows [first, first + kTile) of a head as float32 [kTile][D + 1], zeros past `rows` and past
// `dim`.
template <int D, class T>
__device__ void load_tile(float* tile, HeadRows<const T> from, int first, int rows, int dim) {
  for (int i = threadIdx.x; i < kTile * D; i += kAttentionThreads) {
    const int r = i / D, c = i % D;
    const bool inside = first + r < rows && c < dim;
    tile[r * (D + 1) + c] = inside ? to_float(from.data[(first + r) * from.ld + c]) : 0.0f;
  }
}

// Bias and bucket of the tile's diagonals: entry key - query + kTile - 1.
template <class T>
__device__ void load_bias(const AttentionArgs<T>& args, int h, int q0, int k0, float* bias,
                          int* bucket) {
  if (args.table == nullptr) return;
  for (int i = threadIdx.x; i < kDiagonals; i += kAttentionThreads) {
    bucket[i] = args.buckets.of(k0 - q0 + i - (kTile - 1), args.causal);
    bias[i] = to_float(args.table[bucket[i] * args.heads + h]);
  }
}

// s[i][j] = row (4 ty + i) of a . row (tx + 16 j) of b.
template <int D>
__device__ __forceinline__ void row_products(const float* a, const float* b, int dim,
                                             float (&s)[4][4]) {
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i][j] = 0;
  }
#pragma unroll 4
  for (int d = 0; d < dim; ++d) {
    float x[4], y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = a[(4 * ty + i) * (D + 1) + d];
      y[i] = b[(tx + 16 * i) * (D + 1) + d];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] += x[i] * y[j];
    }
  }
}

// acc[i][j] += sum over k of p[4 ty + i][k] * x[k][tx + 16 j], with p [kTile][kTile + 1]; or of
// p[k][4 ty + i] where transposed.
template <int D, bool kTransposed>
__device__ __forceinline__ void tile_product(const float* p, const float* x,
                                             float (&acc)[4][D / 16]) {
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 2
  for (int k = 0; k < kTile; ++k) {
    float a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = kTransposed ? p[k * (kTile + 1) + 4 * ty + i] : p[(4 * ty + i) * (kTile + 1) + k];
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      const float b = x[k * (D + 1) + tx + 16 * j];
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[i][j] += a[i] * b;
    }
  }
}

// Over the 16 threads of a row.
template <class Join>
__device__ __forceinline__ float row_reduce(float value, const Join& join) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2)
    value = join(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

// Calls body.template operator()<D>() with the smallest tile width that holds a head.
template <class Body>
void with_head_size(int dim, const Body& body) {
  dim <= 64 ? body.template operator()<64>() : body.template operator()<128>();
}

}  // namespace quintet::cuda
