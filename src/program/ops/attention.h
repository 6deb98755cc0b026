// Multi-head attention without score scaling, with T5's relative bias inside: no tensor of size
// [heads, queries, keys] exists. Softmax in float32.
//
// Self-attention reads q, k and v from one tensor [b, s, 3A]; cross-attention reads q [b, t, A] and
// k, v from another [b, s, 2A] (A = heads * head_dim). The bias added to a score depends on (key
// position - query position) alone: bias_bucket() maps that distance to a row of the table
// [buckets, heads].
#pragma once

#include <cstdint>

#include "program/ops/dropout.h"

namespace quintet {

struct AttentionAttrs {
  std::int32_t heads = 0, head_dim = 0;
  bool causal = false;
  std::int32_t buckets = 0, max_distance = 0;  // 0: no relative bias
  std::int32_t first_head = 0;                 // of the global model, for the dropout mask
  std::int64_t first_sample = 0;               // of the global batch, likewise
  float dropout_rate = 0;                      // on the attention weights
  std::uint64_t dropout_seed = 0, dropout_site = 0;
  std::int32_t global_heads = 0;

  template <class Visit>
  void visit(Visit&& visit) const {
    visit("heads", heads);
    visit("dim", head_dim);
    visit("causal", causal);
    visit("buckets", buckets);
    visit("dropout", dropout_rate);
  }
};

// The bias table's row for relative position `distance` = key - query. Non-causal attention spends
// half of the buckets on each sign; within a sign the first half of the buckets are single
// distances and the rest grow logarithmically up to max_distance.
int bias_bucket(std::int64_t distance, bool causal, int buckets, int max_distance);

namespace attention {
enum Inputs {
  kQ,        // [b, s, 3A] self, [b, t, A] cross
  kKv,       // kNone self, [b, s, 2A] cross
  kBias,     // [buckets, heads] or kNone
  kLengths,  // i32 [b]: keys at and past it are masked; kNone: all keys count
  kStep,     // i64 [1], only with dropout
  // i32 [b, t] and [b, s], or kNone: rows hold several segments, and a query sees only keys of its
  // own; one that has none gets zeros.
  kQuerySegments,
  kKeySegments
};
// [b, t, A]; f32 [b, heads, t]; out's largest magnitude (quantize.h), optional.
enum Outputs { kOut, kLogSumExp, kLargest };
}  // namespace attention

namespace attention_backward {
enum Inputs {
  kDOut,
  kQ,
  kKv,
  kBias,
  kLengths,
  kStep,
  kOut,
  kLogSumExp,
  kDBiasAddend,
  kQuerySegments,
  kKeySegments
};
// The first three are shaped as the inputs they belong to. The last two are optional: the largest
// magnitudes of d_q, which in self-attention is [d_q | d_k | d_v], and of d_kv.
enum Outputs { kDQ, kDKv, kDBias, kDQLargest, kDKvLargest };
}  // namespace attention_backward

}  // namespace quintet
