// What the forward and the backward of the Hopper attention share: tile sizes, how the copy engine
// sees the operands, and the bias by distance in shared memory.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "runtime/cuda/attention_sm90.h"

namespace quintet::cuda::sm90 {

inline constexpr int kTile = 128;             // queries, and keys, of one tile
inline constexpr int kGroupRows = kTile / 2;  // a warpgroup has half of a tile's rows
inline constexpr int kGroupThreads = 128;
inline constexpr int kMultiplyWarps = 8;                 // of the two warpgroups
inline constexpr int kTileBytes = kTile * kHeadDim * 2;  // of a bf16 tile [128, 64]
// Distances key - query inside one tile on the band lie in (-256, 256); position d + 256 of a
// table holds distance d.
inline constexpr int kDistances = 512;

// Bf16 [samples, rows, heads * 64] with rows `ld` elements apart, taken in boxes of
// [box_rows, 64].
cudaError_t make_tensor_map(CUtensorMap* map, const void* data, std::int64_t samples,
                            std::int64_t rows, int heads, std::int64_t ld, int box_rows);

// The part of RelativeBias that kernels take, by value.
struct BiasParams {
  const __nv_bfloat16* table;  // [buckets, h]
  // Four buckets to a word: a warp's look-up takes as many turns as there are words it wants.
  std::uint32_t buckets[(2 * kBiasBand + 4) / 4];
};
inline BiasParams bias_params(const RelativeBias& bias) {
  BiasParams p = {};
  p.table = static_cast<const __nv_bfloat16*>(bias.table);
  for (int i = 0; i <= 2 * kBiasBand; ++i) {
    p.buckets[i / 4] |= std::uint32_t{bias.bucket[i]} << (i % 4 * 8);
  }
  return p;
}

// The cases that kernels are compiled for.
template <bool kIsCausal, bool kHasBias, bool kHasSegments>
struct Case {
  static constexpr bool kCausal = kIsCausal, kBias = kHasBias, kSegments = kHasSegments;
};
// What `kernel_of` returns for an attention's case. Of packed samples there are the three kinds of
// attention that T5 has; see supported().
template <class KernelOf>
auto with_case(const Attention& a, const KernelOf& kernel_of) {
  const bool biased = a.bias.table != nullptr;
  if (a.query_segments != nullptr) {
    if (!biased) return kernel_of(Case<false, false, true>());
    return a.causal ? kernel_of(Case<true, true, true>()) : kernel_of(Case<false, true, true>());
  }
  if (a.causal)
    return biased ? kernel_of(Case<true, true, false>()) : kernel_of(Case<true, false, false>());
  return biased ? kernel_of(Case<false, true, false>()) : kernel_of(Case<false, false, false>());
}

#ifdef __CUDACC__
__device__ __forceinline__ int bias_bucket_of(const BiasParams& bias, int distance) {
  const unsigned i = min(max(distance, -kBiasBand), kBiasBand) + kBiasBand;
  return bias.buckets[i / 4] >> (i % 4 * 8) & 0xff;
}
__device__ __forceinline__ float bias_at(const BiasParams& bias, int heads, int head,
                                         int distance) {
  return __bfloat162float(bias.table[bias_bucket_of(bias, distance) * heads + head]);
}
#endif

}  // namespace quintet::cuda::sm90
