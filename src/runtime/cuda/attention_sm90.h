// Attention kernels for Hopper GPUs (sm_90a): bf16, head size 64, T5's relative bias inside, no
// tensor of size [heads, queries, keys] anywhere. Results are bitwise equal from run to run.
//
// The functions only enqueue work on the given stream: no allocation, no synchronisation, safe
// inside graph capture. They may be called from any host thread. `supported()` says whether these
// kernels take a case; what they don't take (dropout on the weights, other head sizes and dtypes,
// other chips) belongs to the generic kernels.
//
// Legend: b batch, h heads, t queries, s keys, A = h * 64.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace quintet::cuda::sm90 {

inline constexpr int kHeadDim = 64;
// The bias is one constant per head and side from this distance on.
inline constexpr int kBiasBand = 128;
// Words into which a kernel puts bits of float32 magnitudes of what it stores, if asked to; the
// largest of them is the largest of all. They are zero before.
inline constexpr int kLargestSlots = 256;

// The bias added to a score depends on key - query alone and is looked up in a table by bucket.
struct RelativeBias {
  const void* table = nullptr;  // bf16 [buckets, h]; null: no bias
  int buckets = 0;              // at most kMaxBuckets
  // Row of the table for distance key - query = i - kBiasBand. The first and the last entry also
  // serve every distance beyond: the bucketing must be constant from kBiasBand on.
  std::uint8_t bucket[2 * kBiasBand + 1] = {};

  static constexpr int kMaxBuckets = 64;
};

// One attention: softmax(q k^T + bias) v, scores not scaled, softmax in float32.
// Row r of a sequence of q lies at q + r * q_ld elements, head i at offset i * 64 in it; sequences
// follow each other at t * q_ld. Likewise k and v with kv_ld and s. So self-attention passes
// q, q + A, q + 2A with both strides 3A, and cross-attention q with A and kv, kv + A with 2A.
struct Attention {
  int batch = 0, heads = 0, queries = 0, keys = 0;
  bool causal = false;                                  // query i sees keys 0..i
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // bf16, 16-byte aligned
  std::int64_t q_ld = 0, kv_ld = 0;                     // in elements, multiples of 8
  const std::int32_t* lengths = nullptr;  // [b]: keys at and past it are masked; null: none is
  // [b, t] and [b, s]: a query sees only keys of its own segment. Both or neither.
  const std::int32_t *query_segments = nullptr, *key_segments = nullptr;
  RelativeBias bias;
};

struct AttentionBackward {
  const void* d_out = nullptr;                          // bf16 [b, t, A]
  const void* out = nullptr;                            // bf16 [b, t, A], as the forward wrote it
  const float* lse = nullptr;                           // f32 [b, h, t], likewise
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;  // bf16, laid out as q, k and v
  // [buckets, h] in float32 or bf16; null where there is no bias.
  void* d_bias = nullptr;
  bool d_bias_f32 = true;
  bool add_to_d_bias = false;  // d_bias holds an addend
  // [kLargestSlots] of d_q, and of d_k and d_v together; may be the same; null: nobody asks.
  std::uint32_t *d_q_largest = nullptr, *d_kv_largest = nullptr;
};

// Whether these kernels take the case on the current device.
bool supported(const Attention& a);

// out: bf16 [b, t, A]; lse: f32 [b, h, t]. Queries that see no key get 0 in both. largest:
// [kLargestSlots] of out, or null.
cudaError_t forward(const Attention& a, void* out, float* lse, std::uint32_t* largest,
                    cudaStream_t stream);

// Bytes of scratch that backward() needs, 256-byte aligned: 8 per score row, 256 per query for each
// block at work (as many as multiprocessors, or heads of all samples if those are fewer), and with
// a bias 2112 per head and sample.
std::int64_t backward_workspace(const Attention& a);
cudaError_t backward(const Attention& a, const AttentionBackward& b, void* workspace,
                     cudaStream_t stream);

}  // namespace quintet::cuda::sm90
