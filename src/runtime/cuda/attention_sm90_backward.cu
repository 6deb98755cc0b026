// Backward: one persistent block per multiprocessor takes one (sample, head) after another, whole:
// for each tile of 128 keys (dK and dV in registers) all tiles of 128 queries. So dQ, which every
// tile of keys adds to, is summed by one block in a fixed order: in float32 in a scratch that stays
// in the L2 cache, each thread adding to its own words. No atomics between blocks, no second pass.
//
// Scores are taken transposed, so that weights and their gradients are ready in registers as left
// operands of dV and dK. Two warpgroups hold 64 keys each. For a tile:
//   S^T = K Q^T, dP^T = V dO^T              [keys, queries]
//   P = exp(S + bias - lse), dS = P (dP - D), D = rowsum(dO * O)
//   dV += P^T dO, dK += dS^T Q, dQ += dS K   (dS through shared memory for the last)
// A third warpgroup serves: one warp feeds tiles through the copy engine; the others sum dS along
// diagonals for the gradient of the bias while it lies in shared memory, in tiles on the band
// (|key - query| < 128), and build the next head's bias. Off the band the sum of all dS is enough,
// which the multiplying warps take from their registers.
//
// Legend: b batch, h heads, t queries, s keys, A = h * 64.

#include <algorithm>
#include <cmath>

#include "runtime/cuda/attention_sm90.h"
#include "runtime/cuda/attention_sm90_backward_ends.cuh"
#include "runtime/cuda/attention_sm90_backward_roles.cuh"
#include "runtime/cuda/attention_sm90_common.h"
#include "runtime/cuda/attention_sm90_device.cuh"
#include "runtime/cuda/largest_device.cuh"

namespace quintet::cuda::sm90 {
namespace {

// --- The warpgroups that multiply ----------------------------------------------------------------

// Of packed samples: the segments of a thread's two keys, those of the sample's queries, and the
// first query of the thread in the tile and the last of all.
struct Segments {
  int key[2];
  const std::int32_t* queries;
  int first, last;
};

// S^T of a tile to P, in place. Rows r and r + 8 of a thread are keys, columns are queries. `bias`
// points to the distance of the thread's first element; `from` are the first columns (less the
// thread's own) that see the rows' keys.
template <bool kBand, bool kMask, bool kSegments>
__device__ __forceinline__ void weights_tile(float (&s)[64], const float4* stats,
                                             const float2* bias, float far, const int (&from)[2],
                                             const Segments& segments) {
  // Going 8 keys and 8 queries further leaves the distance as it is: row r + 8 uses the biases
  // that row r had one step before.
  float2 before = {};
  if constexpr (kBand) before = bias[8];
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const float2 lse = *reinterpret_cast<const float2*>(stats + 4 * n);
    float shift[4];
    if constexpr (kBand) {
      const float2 now = bias[-8 * n];
      shift[0] = now.x - lse.x;
      shift[1] = now.y - lse.y;
      shift[2] = before.x - lse.x;
      shift[3] = before.y - lse.y;
      before = now;
    } else {
      shift[0] = shift[2] = far - lse.x;
      shift[1] = shift[3] = far - lse.y;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s[4 * n + i];
      x = exp2_fast(fmaf(x, kLog2e, shift[i]));
      if (kMask && 8 * n + i % 2 < from[i / 2]) x = 0;
    }
    if constexpr (kSegments) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int segment =
            __ldg(segments.queries + min(segments.first + 8 * n + j, segments.last));
        if (segment != segments.key[0]) s[4 * n + j] = 0;
        if (segment != segments.key[1]) s[4 * n + 2 + j] = 0;
      }
    }
  }
}

// P and dP^T to P and dS as bf16 operands. Returns the sum of dS if asked for.
template <bool kSum>
__device__ __forceinline__ float score_gradients(const float (&w)[64], const float (&dp)[64],
                                                 const float4* stats, std::uint32_t (&weights)[32],
                                                 std::uint32_t (&d_scores)[32]) {
  float sums[2] = {};
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    const float2 row_sums = *(reinterpret_cast<const float2*>(stats + 4 * n) + 1);  // D
    float d[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      d[i] = w[4 * n + i] * (dp[4 * n + i] - (i % 2 == 0 ? row_sums.x : row_sums.y));
      if constexpr (kSum) sums[i % 2] += d[i];
    }
    weights[2 * n] = pack(w[4 * n], w[4 * n + 1]);
    weights[2 * n + 1] = pack(w[4 * n + 2], w[4 * n + 3]);
    d_scores[2 * n] = pack(d[0], d[1]);
    d_scores[2 * n + 1] = pack(d[2], d[3]);
  }
  return sums[0] + sums[1];
}

// Writes a warpgroup's [64, 64] accumulator as bf16 to a tile. `most`: the largest pair so far.
__device__ __forceinline__ void stage_tile(const float (&d)[32], const std::uint8_t* tile, int warp,
                                           int lane, std::uint32_t& most) {
  const int row = warp % 4 * 16 + lane % 16;
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    std::uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      r[i] = pack(d[4 * n + 2 * i], d[4 * n + 2 * i + 1]);
      most = larger_pair(most, r[i]);
    }
    store_matrices(shared_address(tile) + row * 128 + ((n + lane / 16) ^ (row % 8)) * 16, r);
  }
}

// Sums that outlive a tile, each thread its own words.
__device__ __forceinline__ void add_sums(const float (&d)[32], float4* to, bool first) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float4 x = make_float4(d[4 * n], d[4 * n + 1], d[4 * n + 2], d[4 * n + 3]);
    if (first) {
      put(to + n * kGroupThreads, x);
    } else {
      add(to + n * kGroupThreads, x);
    }
  }
}
__device__ __forceinline__ void get_sums(float (&d)[32], const float4* from) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float4 x = get(from + n * kGroupThreads);
    d[4 * n] = x.x;
    d[4 * n + 1] = x.y;
    d[4 * n + 2] = x.z;
    d[4 * n + 3] = x.w;
  }
}

// Writes a warpgroup's part of dQ of one tile.
__device__ __forceinline__ void write_d_q(const Params& p, Shared& shared, const float (&d)[32],
                                          int sample, int head, int first_query) {
  const int thread = threadIdx.x % kGroupThreads;
  const int query = first_query + thread / 32 * 16 + thread % 32 / 4;
  __nv_bfloat16* row = p.d_q + (std::int64_t{sample} * p.queries + query) * p.q_ld +
                       head * kHeadDim + 2 * (thread % 4);
  std::uint32_t most = 0;
  const auto store = [&](__nv_bfloat16* to, float low, float high) {
    const std::uint32_t pair = pack(low, high);
    *reinterpret_cast<std::uint32_t*>(to) = pair;
    most = larger_pair(most, pair);
  };
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (query < p.queries) store(row + 8 * n, d[4 * n], d[4 * n + 1]);
    if (query + 8 < p.queries) store(row + 8 * p.q_ld + 8 * n, d[4 * n + 2], d[4 * n + 3]);
  }
  // Registers are scarce here, so the largest waits in shared memory, each thread's in a word of
  // its own; volatile, for not even the word's address should be kept.
  unsigned self;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(self));
  std::uint32_t& so_far = shared.d_q_most[self];
  so_far = larger_pair(so_far, most);
}

__device__ __forceinline__ void zero_rows(__nv_bfloat16* to, std::int64_t ld, int rows) {
  for (int i = threadIdx.x % kGroupThreads; i < rows * 8; i += kGroupThreads) {
    *reinterpret_cast<uint4*>(to + (i / 8) * ld + i % 8 * 8) = uint4{};
  }
}

// All query tiles against one tile of keys.
template <bool kCausal, bool kBias, bool kSegments>
__device__ __forceinline__ void key_tile(const Params& p, Shared& shared, const Item<kCausal>& item,
                                         int j, const float2* bias_table, float (&far_sums)[2],
                                         const Ring<kStages>& kv, Ring<kStages>& ring,
                                         const CUtensorMap& d_k_map, const CUtensorMap& d_v_map) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;
  const int column = 2 * (lane % 4);                 // of the tile's queries: the thread's first
  const int key = j * kTile + warp * 16 + lane / 4;  // likewise
  const int tiles = item.query_tiles_of(p, j);
  Segments segments;
  if constexpr (kSegments) {
    for (int r = 0; r < 2; ++r) {
      segments.key[r] =
          p.key_segments[std::int64_t{item.sample} * p.keys + min(key + 8 * r, p.keys - 1)];
    }
    segments.queries = p.query_segments + std::int64_t{item.sample} * p.queries;
    segments.last = p.queries - 1;
  }

  float d_k[32] = {}, d_v[32] = {};
  const std::uint64_t k_desc = tile_descriptor(shared.k[kv.stage]);
  const std::uint64_t v_desc = tile_descriptor(shared.v[kv.stage]);
  const int half = group * (kTileBytes / 2 >> 4);  // this warpgroup's rows
  float s[64];
  // S^T = K Q^T, asynchronously.
  const auto start_scores = [&](const Ring<kStages>& at) {
    const std::uint64_t q_desc = tile_descriptor(shared.q[at.stage]);
    barrier_wait(&shared.q_full[at.stage], at.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4 * kStepColumns; k += kStepColumns) {
      wgmma_ss<0, 0>(s, k_desc + half + k, q_desc + k, k > 0);
    }
    wgmma_commit();
  };
  barrier_wait(&shared.kv_full[kv.stage], kv.parity);
  start_scores(ring);
  for (int n = 0;; ++n) {
    const int i = item.query_tile(p, j, n);
    // 1. dP^T = V dO^T, under the exponentials
    const std::uint64_t q_desc = tile_descriptor(shared.q[ring.stage]);
    const std::uint64_t d_out_desc = tile_descriptor(shared.d_out[ring.stage]);
    float dp[64];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4 * kStepColumns; k += kStepColumns) {
      wgmma_ss<0, 0>(dp, v_desc + half + k, d_out_desc + k, k > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    pin(s);

    // 2. P, then dS
    const float4* stats = shared.stats[ring.stage] + lane % 4;
    const bool mask = (j + 1) * kTile > item.keys || (kCausal && i == j);
    if constexpr (kSegments) segments.first = i * kTile + column;
    int from[2] = {0, 0};
    if (mask) {
      for (int r = 0; r < 2; ++r) {
        if (kCausal) from[r] = key + 8 * r - i * kTile - column;
        if (key + 8 * r >= item.keys) from[r] = kTile;
      }
    }
    if (kBias && on_band(j, i)) {
      const float2* bias = bias_table + (key - i * kTile - column + kDistances / 2);
      if (mask) {
        weights_tile<true, true, kSegments>(s, stats, bias, 0, from, segments);
      } else {
        weights_tile<true, false, kSegments>(s, stats, bias, 0, from, segments);
      }
    } else {
      const float far = kBias ? bias_table[j > i ? kDistances - 1 : 0].x : 0.0f;
      if (mask) {
        weights_tile<false, true, kSegments>(s, stats, nullptr, far, from, segments);
      } else {
        weights_tile<false, false, kSegments>(s, stats, nullptr, far, from, segments);
      }
    }
    std::uint32_t weights[32], d_scores[32];
    wgmma_wait<0>();
    pin(dp);
    const float sum = score_gradients<kBias>(s, dp, stats, weights, d_scores);
    if (kBias && !on_band(j, i)) {
      far_sums[0] += j < i ? sum : 0;
      far_sums[1] += j < i ? 0 : sum;
    }

    // 3. dS to shared memory for dQ
    barrier_wait(&shared.ds_empty[ring.stage], ring.parity ^ 1);
    const std::uint32_t ds_at =
        shared_address(shared.ds[ring.stage][0]) + (warp * 16 + lane % 16) * 128;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      store_matrices(ds_at + k / 4 * kTileBytes + (((2 * k + lane / 16) ^ lane) % 8) * 16,
                     d_scores + 4 * k);
    }
    fence_async();
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.ds_full[ring.stage]);

    // 4. dV += P^T dO and dK += dS^T Q, then dQ = dS K when both warpgroups have written dS
    pin(d_k);
    pin(d_v);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      wgmma_rs<1>(d_v, weights + 4 * k, d_out_desc + k * kStepRows, true);
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      wgmma_rs<1>(d_k, d_scores + 4 * k, q_desc + k * kStepRows, true);
    }
    wgmma_commit();
    const std::uint64_t ds_desc = tile_descriptor(shared.ds[ring.stage][group]);
    barrier_wait(&shared.ds_full[ring.stage], ring.parity);
    float d_q[32];
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      wgmma_ss<1, 1>(d_q, ds_desc + k * kStepRows, k_desc + k * kStepRows, k > 0);
    }
    wgmma_commit();
    float4* sums =
        p.d_q_sums +
        ((std::int64_t{blockIdx.x} * p.query_tiles + i) * 2 + group) * 8 * kGroupThreads +
        threadIdx.x % kGroupThreads;
    const bool first = j == 0, last = j == item.last_key_tile(i);
    wgmma_wait<0>();
    pin(d_k);
    pin(d_v);
    pin(d_q);
    barrier_arrive(&shared.q_empty[ring.stage]);  // each thread for what it read of `stats`
    if (lane == 0) barrier_arrive(&shared.ds_empty[ring.stage]);

    // 5. The next scores start while dQ is put away.
    const auto put_away = [&] {
      if (!last) {
        add_sums(d_q, sums, first);
        return;
      }
      if (!first) {
        float old[32];
        get_sums(old, sums);
#pragma unroll
        for (int e = 0; e < 32; ++e) d_q[e] += old[e];
      }
      write_d_q(p, shared, d_q, item.sample, item.head, i * kTile + group * kGroupRows);
    };
    ring.advance();
    if (n + 1 == tiles) {
      put_away();
      break;
    }
    start_scores(ring);
    put_away();
  }

  const bool leader = threadIdx.x % kGroupThreads == 0;
  // 6. dV through the memory of V, dK through that of K, when both warpgroups are done with them
  std::uint8_t* d_v_tile = shared.v[kv.stage] + group * kTileBytes / 2;
  std::uint8_t* d_k_tile = shared.k[kv.stage] + group * kTileBytes / 2;
  named_barrier<2 * kGroupThreads>(kMultiplyBarrier);
  std::uint32_t most = 0;
  stage_tile(d_v, d_v_tile, warp, lane, most);
  stage_tile(d_k, d_k_tile, warp, lane, most);
  fence_async();
  named_barrier<kGroupThreads>(1 + group);
  if (leader) {
    const int key0 = j * kTile + group * kGroupRows;
    store_tile(&d_v_map, d_v_tile, item.head * kHeadDim, key0, item.sample, kKeepShort);
    store_tile(&d_k_map, d_k_tile, item.head * kHeadDim, key0, item.sample, kKeepShort);
    stores_commit();
    stores_wait_read();
    barrier_arrive(&shared.kv_empty[kv.stage]);
  }
  __syncwarp();
  // Rows past the last key are not stored, but zero, as nobody sees those keys: they do not count.
  if (p.d_kv_largest != nullptr) say_largest<kLargestSlots>(p.d_kv_largest, most);
}

template <bool kCausal, bool kBias, bool kSegments>
__device__ __forceinline__ void multiply(const Params& p, Shared& shared,
                                         const CUtensorMap& d_k_map, const CUtensorMap& d_v_map) {
  const int group = threadIdx.x / kGroupThreads;
  Ring<kStages> kv, ring;  // `ring`: of queries, and of dS
  Ring<2> slot;            // of the bias
  shared.d_q_most[threadIdx.x] = 0;
  for (int index = blockIdx.x; index < p.batch * p.heads; index += gridDim.x) {
    const Item<kCausal> item(p, index);
    if constexpr (kBias) barrier_wait(&shared.bias_full[slot.stage], slot.parity);
    float far_sums[2] = {};  // of dS beyond the band: keys before, keys after the query
    for (int j = 0; j < item.key_tiles; ++j) {
      key_tile<kCausal, kBias, kSegments>(p, shared, item, j, shared.bias[slot.stage], far_sums, kv,
                                          ring, d_k_map, d_v_map);
      kv.advance();
    }

    slot.advance();
    if constexpr (kBias) {
      for (float& sum : far_sums) {
        for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      }
      if (threadIdx.x % 32 == 0) {
        p.d_far_sums[std::int64_t{index} * kMultiplyWarps + threadIdx.x / 32] =
            make_float2(far_sums[0], far_sums[1]);
      }
    }

    // What no tile wrote
    const int rest = p.keys - item.key_tiles * kTile;
    if (rest > 0) {
      __nv_bfloat16* to = group == 0 ? p.d_k : p.d_v;
      zero_rows(
          to + (std::int64_t{item.sample + 1} * p.keys - rest) * p.kv_ld + item.head * kHeadDim,
          p.kv_ld, rest);
    }
    if (item.key_tiles == 0 && group == 0) {
      zero_rows(p.d_q + std::int64_t{item.sample} * p.queries * p.q_ld + item.head * kHeadDim,
                p.q_ld, p.queries);
    }
  }
  if (p.d_q_largest != nullptr) {
    say_largest<kLargestSlots>(p.d_q_largest, shared.d_q_most[threadIdx.x]);
  }
}

template <bool kCausal, bool kBias, bool kSegments>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ Params p, const __grid_constant__ CUtensorMap q_map,
                    const __grid_constant__ CUtensorMap k_map,
                    const __grid_constant__ CUtensorMap v_map,
                    const __grid_constant__ CUtensorMap d_out_map,
                    const __grid_constant__ CUtensorMap d_k_map,
                    const __grid_constant__ CUtensorMap d_v_map) {
  extern __shared__ __align__(1024) std::uint8_t raw[];
  Shared& shared = *reinterpret_cast<Shared*>(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.kv_full[i], 1);
      barrier_init(&shared.kv_empty[i], 2);
      barrier_init(&shared.q_full[i], 32);  // the warp that feeds
      barrier_init(&shared.q_empty[i], 32 * kMultiplyWarps);
      barrier_init(&shared.ds_full[i], kMultiplyWarps);
      barrier_init(&shared.ds_empty[i], kMultiplyWarps + (kBias ? kSumWarps : 0));
      barrier_init(&shared.bias_full[i], kSumThreads);
    }
    fence_async();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < kMultiplyWarps) {
    take_registers<kMultiplyRegisters>();
    multiply<kCausal, kBias, kSegments>(p, shared, d_k_map, d_v_map);
  } else {
    give_registers<kServiceRegisters>();
    if (warp == kMultiplyWarps) {
      feed<kCausal>(p, shared, lane, q_map, k_map, v_map, d_out_map);
    } else if (kBias) {
      sum_bias_gradient<kCausal>(p, shared, warp - kMultiplyWarps - 1, lane);
    }
  }
}

// --- Host ----------------------------------------------------------------------------------------

int blocks_for(const Attention& a) {
  int device = 0, multiprocessors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return std::min(multiprocessors, a.batch * a.heads);
}

// The parts of the workspace, in bytes from its start.
struct Workspace {
  std::int64_t stats, d_q_sums, d_bias_sums, d_far_sums, bytes;
  explicit Workspace(const Attention& a) {
    const std::int64_t rows = (a.queries + kTile - 1) / kTile * kTile;
    const std::int64_t items = std::int64_t{a.batch} * a.heads;
    const std::int64_t biased = a.bias.table == nullptr ? 0 : 1;
    stats = 0;
    d_q_sums = stats + items * rows * 2 * 4;
    d_bias_sums = d_q_sums + std::int64_t{blocks_for(a)} * rows * kHeadDim * 4;
    d_far_sums = d_bias_sums + biased * items * kDistances * 4;
    bytes = d_far_sums + biased * items * kMultiplyWarps * 8;
  }
};

}  // namespace

std::int64_t backward_workspace(const Attention& a) {
  return Workspace(a).bytes;
}

cudaError_t backward(const Attention& a, const AttentionBackward& b, void* workspace,
                     cudaStream_t stream) {
  const Workspace parts(a);
  auto* bytes = static_cast<std::uint8_t*>(workspace);
  auto* stats = reinterpret_cast<float*>(bytes + parts.stats);
  Params p = {};
  p.batch = a.batch;
  p.heads = a.heads;
  p.queries = a.queries;
  p.keys = a.keys;
  p.query_tiles = (a.queries + kTile - 1) / kTile;
  p.lengths = a.lengths;
  p.query_segments = a.query_segments;
  p.key_segments = a.key_segments;
  p.d_q = static_cast<__nv_bfloat16*>(b.d_q);
  p.d_k = static_cast<__nv_bfloat16*>(b.d_k);
  p.d_v = static_cast<__nv_bfloat16*>(b.d_v);
  p.q_ld = a.q_ld;
  p.kv_ld = a.kv_ld;
  p.stats = reinterpret_cast<const float4*>(stats);
  p.d_q_sums = reinterpret_cast<float4*>(bytes + parts.d_q_sums);
  p.d_bias_sums = reinterpret_cast<float*>(bytes + parts.d_bias_sums);
  p.d_far_sums = reinterpret_cast<float2*>(bytes + parts.d_far_sums);
  p.d_q_largest = b.d_q_largest;
  p.d_kv_largest = b.d_kv_largest;
  p.bias = bias_params(a.bias);

  const std::int64_t width = std::int64_t{a.heads} * kHeadDim;
  CUtensorMap q_map, k_map, v_map, d_out_map, d_k_map, d_v_map;
  const cudaError_t maps[] = {
      make_tensor_map(&q_map, a.q, a.batch, a.queries, a.heads, a.q_ld, kTile),
      make_tensor_map(&k_map, a.k, a.batch, a.keys, a.heads, a.kv_ld, kTile),
      make_tensor_map(&v_map, a.v, a.batch, a.keys, a.heads, a.kv_ld, kTile),
      make_tensor_map(&d_out_map, b.d_out, a.batch, a.queries, a.heads, width, kTile),
      make_tensor_map(&d_k_map, b.d_k, a.batch, a.keys, a.heads, a.kv_ld, kGroupRows),
      make_tensor_map(&d_v_map, b.d_v, a.batch, a.keys, a.heads, a.kv_ld, kGroupRows)};
  for (const cudaError_t error : maps) {
    if (error != cudaSuccess) return error;
  }

  const int padded = p.query_tiles * kTile;
  const dim3 stats_grid(padded / kStatsQueries, (a.heads + kStatsHeads - 1) / kStatsHeads, a.batch);
  stats_kernel<<<stats_grid, kStatsThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(b.d_out),
                                                         static_cast<const __nv_bfloat16*>(b.out),
                                                         b.lse, a.heads, a.queries, padded, stats);

  const auto kernel = with_case(a, []<class Case>(Case) {
    return backward_kernel<Case::kCausal, Case::kBias, Case::kSegments>;
  });
  const int shared = sizeof(Shared);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error != cudaSuccess) return error;
  kernel<<<blocks_for(a), kThreads, shared, stream>>>(p, q_map, k_map, v_map, d_out_map, d_k_map,
                                                      d_v_map);
  if (a.bias.table != nullptr && b.d_bias != nullptr) {
    const auto reduce = [&]<class T>(T* d_bias) {
      bias_gradient_kernel<<<a.heads, 1024, 0, stream>>>(p.bias, p.d_bias_sums, p.d_far_sums,
                                                         a.batch, a.heads, a.bias.buckets,
                                                         b.add_to_d_bias, d_bias);
    };
    if (b.d_bias_f32) {
      reduce(static_cast<float*>(b.d_bias));
    } else {
      reduce(static_cast<__nv_bfloat16*>(b.d_bias));
    }
  }
  return cudaGetLastError();
}

}  // namespace quintet::cuda::sm90
