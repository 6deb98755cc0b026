// What generation needs beside the ops of training: the decoder's self-attention for one token at a
// time, over keys and values kept from the tokens before it, and the best words after a token.
#pragma once

#include <cstdint>

namespace quintet {

// Puts the new token's key and value at its position of the cache, then attends from it to all
// positions up to its own, with T5's relative bias.
struct CachedAttentionAttrs {
  std::int32_t heads = 0, head_dim = 0;
  std::int32_t buckets = 0, max_distance = 0;

  template <class Visit>
  void visit(Visit&& visit) const {
    visit("heads", heads);
    visit("dim", head_dim);
    visit("buckets", buckets);
  }
};

namespace cached_attention {
enum Inputs {
  kQkv,       // [r, 1, 3A]: query, key and value of the new token of each row
  kCache,     // [r, T, 2A], updated in place
  kBias,      // [buckets, heads]
  kPosition,  // i32 [1]: of the new token, from 0
  // i32 [r, T] or kNone: in which row of the cache a row finds its key of each position. With
  // beams, a row goes on from another one's past; without, every row has its own.
  kRows
};
enum Outputs { kOut, kCacheOut };  // [r, 1, A], kCache itself

// The most that a head may have: kernels keep one in registers.
inline constexpr std::int64_t kMaxHeadDim = 256;
}  // namespace cached_attention

// The `count` largest logits of each row, largest first and of equal ones the lowest word first, as
// log-probabilities over the whole vocabulary.
struct TopLogitsAttrs {
  std::int32_t count = 1;
  float scale = 1;  // of the logits: d_model^-0.5 where the head is tied to the embedding

  template <class Visit>
  void visit(Visit&& visit) const {
    visit("count", count);
    visit("scale", scale);
  }
};

namespace top_logits {
enum Inputs { kLogits };                     // [r, 1, V]
enum Outputs { kWords, kLogProbabilities };  // i32 [r, count], f32 [r, count]

inline constexpr std::int32_t kMaxCount = 64;
}  // namespace top_logits

}  // namespace quintet
