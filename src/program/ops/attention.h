// Multi-head attention without score scaling, with T5's relative bias inside: no tensor of size
// [heads, queries, keys] exists. Softmax in float32.
//
// Self-attention reads q, k and v from one tensor [b, s, 3A]; cross-attention reads q [b, t, A] and
// k, v from another [b, s, 2A] (A = heads * head_dim). The bias added to a score depends on (key
// position - query position) alone: bias_bucket() maps that distance to a row of the table
// [buckets, heads].
#pragma once

#include <algorithm>
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
enum Outputs { kOut, kLogSumExp };  // [b, t, A], f32 [b, heads, t]

// Queries are taken in blocks of this many rows.
inline constexpr std::int64_t kQueryBlock = 64;

// The CPU kernels' scratch begins with the bucket of every distance, shared by all threads.
inline std::int64_t bucket_floats(std::int64_t queries, std::int64_t keys) {
  return (queries + keys + 15) / 16 * 16;
}

// Their scratch for one thread, in floats: scores of a block of queries, the bias by distance,
// and float32 copies of the operands of one head (used for bf16 only, but always there: small, and
// one layout for both).
struct Scratch {
  std::int64_t scores, distances, operands;
  static Scratch forward(std::int64_t queries, std::int64_t keys, std::int64_t dim) {
    const std::int64_t block = std::min(queries, kQueryBlock);
    return {block * keys, queries + keys, 2 * keys * dim + 2 * block * dim};
  }
  static Scratch backward(std::int64_t queries, std::int64_t keys, std::int64_t dim) {
    const std::int64_t block = std::min(queries, kQueryBlock);
    return {2 * block * keys, 2 * (queries + keys), 4 * keys * dim + 4 * block * dim};
  }
  std::int64_t bytes() const { return (4 * (scores + distances + operands) + 63) / 64 * 64; }
};

// A device's kernels work on tiles of this many queries and keys.
inline constexpr std::int64_t kDeviceTile = 64;
// Scratch of the plain kernels' backward, in bytes: a number for each row of scores, then for each
// tile of queries what it adds to each bucket of the bias.
struct DeviceScratch {
  std::int64_t sums_offset, bytes;
  static DeviceScratch backward(std::int64_t batch, std::int64_t queries, std::int64_t heads,
                                std::int64_t buckets) {
    const std::int64_t tiles = (queries + kDeviceTile - 1) / kDeviceTile;
    const std::int64_t rows = (4 * batch * heads * queries + 255) / 256 * 256;
    return {rows, rows + 4 * batch * heads * tiles * buckets};
  }
};
// The most that the Hopper kernels' backward asks for (head size 64): two numbers a row, float32
// sums of dQ for every block at work, and the bias by distance.
inline std::int64_t hopper_backward_bytes(std::int64_t batch, std::int64_t queries,
                                          std::int64_t heads, bool biased) {
  const std::int64_t items = batch * heads, blocks = std::min<std::int64_t>(items, 144);
  const std::int64_t rows = (queries + 127) / 128 * 128;
  return 8 * items * rows + blocks * rows * 64 * 4 + (biased ? items * (512 * 4 + 256) : 0);
}
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
enum Outputs { kDQ, kDKv, kDBias };  // shaped as the inputs they belong to
}  // namespace attention_backward

}  // namespace quintet
