// Forward: one block per (sample, head, 128 queries). Two warpgroups hold 64 queries each, with
// their output in registers; tiles of 128 keys and values come through rings of two stages,
// refilled by whichever warp is the last to be done with a stage, so that nobody waits to
// refill. Two blocks share a multiprocessor: one's products run under the other's exponentials.
//
// For a tile of keys: S = Q K^T, softmax online, O += P V with P straight from registers.
// Exponents are of base 2, log2(e) folded in. The bias depends on key - query: on the band
// (|distance| < 128) it is looked up in shared memory, elsewhere it is one number that joins the
// shift of the exponent.
//
// Legend: b batch, h heads, t queries, s keys; S [128, 128] scores of a tile.

#include <cmath>

#include "runtime/cuda/attention_sm90.h"
#include "runtime/cuda/attention_sm90_common.h"
#include "runtime/cuda/attention_sm90_device.cuh"
#include "runtime/cuda/largest_device.cuh"

namespace quintet::cuda::sm90 {
namespace {

constexpr int kStages = 2;
constexpr int kThreads = 2 * kGroupThreads;

struct Shared {
  alignas(1024) std::uint8_t q[kTileBytes];  // later the output
  alignas(1024) std::uint8_t k[kStages][kTileBytes];
  alignas(1024) std::uint8_t v[kStages][kTileBytes];
  float2 bias[kDistances];  // {bias of distance d, of d + 1} * log2(e)
  std::uint64_t q_full, k_full[kStages], v_full[kStages];
  unsigned k_done[kStages], v_done[kStages];  // warps done with a stage, ever
};

struct Params {
  int heads, queries, keys, query_tiles;
  const std::int32_t *lengths, *query_segments, *key_segments;
  float* lse;              // [b, h, t]
  std::uint32_t* largest;  // [kLargestSlots] or null
  BiasParams bias;
};

// The running softmax of the two rows that a thread has a part of: r and r + 8.
struct Rows {
  float max[2];  // of base-2 exponents
  float sum[2];  // this thread's part
};

// Where a thread's part of a tile lies.
struct Place {
  int query;       // of its first row
  int column;      // of its first element in a tile of keys
  int visible[2];  // keys that its rows see
  // Of packed samples: the segments of its rows and of the keys, and the last of these.
  int segment[2];
  const std::int32_t* key_segments;
  int last_key;
};

// Turns scores into weights, in place, and returns the factors for what was summed before.
template <bool kBand, bool kMask, bool kSegments>
__device__ __forceinline__ void softmax_tile(float (&s)[64], Rows& rows, float (&rescale)[2],
                                             const Place& place, int first_key, float far,
                                             const float2* bias) {
  if constexpr (kBand) {
    // Going 8 keys and 8 queries further leaves the distance as it is: row r + 8 uses the biases
    // that row r had one step before.
    const float2* at = bias + (first_key + place.column - place.query + kDistances / 2);
    float2 before = at[-8];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 now = at[8 * n];
      s[4 * n] = fmaf(s[4 * n], kLog2e, now.x);
      s[4 * n + 1] = fmaf(s[4 * n + 1], kLog2e, now.y);
      s[4 * n + 2] = fmaf(s[4 * n + 2], kLog2e, before.x);
      s[4 * n + 3] = fmaf(s[4 * n + 3], kLog2e, before.y);
      before = now;
    }
  }
  if constexpr (kMask) {
    const int left[2] = {place.visible[0] - first_key - place.column,
                         place.visible[1] - first_key - place.column};
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (8 * n + (i & 1) >= left[i / 2]) s[4 * n + i] = -INFINITY;
      }
    }
  }
  if constexpr (kSegments) {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = min(first_key + place.column + 8 * n + j, place.last_key);
        const int segment = __ldg(place.key_segments + key);
        if (segment != place.segment[0]) s[4 * n + j] = -INFINITY;
        if (segment != place.segment[1]) s[4 * n + 2 + j] = -INFINITY;
      }
    }
  }
  // Four independent chains (row, column parity), for the length of a chain is what costs.
  float max[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
  for (int n = 1; n < 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) max[i] = fmaxf(max[i], s[4 * n + i]);
  }
  float shift[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float m = fmaxf(max[2 * i], max[2 * i + 1]);
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
    if constexpr (!kBand) m = fmaf(m, kLog2e, far);
    m = fmaxf(m, rows.max[i]);
    // A row may have seen nothing yet.
    const float base = kSegments && m == -INFINITY ? 0.0f : m;
    rescale[i] = exp2_fast(rows.max[i] - base);
    rows.max[i] = m;
    shift[i] = kBand ? -base : far - base;
  }
  float sum[4] = {};
#pragma unroll
  for (int n = 0; n < 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s[4 * n + i];
      x = exp2_fast(kBand ? x + shift[i / 2] : fmaf(x, kLog2e, shift[i / 2]));
      sum[i] += x;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    rows.sum[i] = fmaf(rows.sum[i], rescale[i], sum[2 * i] + sum[2 * i + 1]);
  }
}

template <bool kCausal, bool kBias, bool kSegments>
__device__ __forceinline__ void softmax_any(float (&s)[64], Rows& rows, float (&rescale)[2],
                                            const Place& place, int first_key, int tile_query,
                                            int keys, const float2* bias) {
  const bool mask = first_key + kTile > keys || (kCausal && first_key + kTile > tile_query + 1);
  if (kBias && abs(first_key - tile_query) <= kTile) {
    if (mask) {
      softmax_tile<true, true, kSegments>(s, rows, rescale, place, first_key, 0, bias);
    } else {
      softmax_tile<true, false, kSegments>(s, rows, rescale, place, first_key, 0, bias);
    }
  } else {
    const float far = kBias ? bias[first_key > tile_query ? kDistances - 1 : 0].x : 0.0f;
    if (mask) {
      softmax_tile<false, true, kSegments>(s, rows, rescale, place, first_key, far, bias);
    } else {
      softmax_tile<false, false, kSegments>(s, rows, rescale, place, first_key, far, bias);
    }
  }
}

// Counts the block's warps through; true for the one that comes last.
__device__ __forceinline__ bool is_last(unsigned* count) {
  unsigned before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "r"(shared_address(count))
               : "memory");
  return before % (kThreads / 32) == kThreads / 32 - 1;
}

template <bool kCausal, bool kBias, bool kSegments>
__global__ void __launch_bounds__(kThreads, 2)
    forward_kernel(const __grid_constant__ Params p, const __grid_constant__ CUtensorMap q_map,
                   const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map,
                   const __grid_constant__ CUtensorMap out_map) {
  extern __shared__ __align__(1024) std::uint8_t raw[];
  Shared& shared = *reinterpret_cast<Shared*>(raw);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Causal blocks with the most keys first.
  const int tile = kCausal ? p.query_tiles - 1 - static_cast<int>(blockIdx.x) : blockIdx.x;
  const int sample = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
  const int q0 = tile * kTile;
  const int keys = p.lengths == nullptr ? p.keys : min(max(p.lengths[sample], 0), p.keys);
  const int seen = kCausal ? min(keys, q0 + kTile) : keys;
  const int key_tiles = (seen + kTile - 1) / kTile;

  const int column = head * kHeadDim;
  const auto load = [&](const CUtensorMap& map, std::uint8_t* to, std::uint64_t* full, int row) {
    barrier_expect(full, kTileBytes);
    load_tile(to, &map, full, column, row, sample);
  };
  if (threadIdx.x == 0) {
    barrier_init(&shared.q_full, 1);
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&shared.k_full[i], 1);
      barrier_init(&shared.v_full[i], 1);
      shared.k_done[i] = shared.v_done[i] = 0;
    }
    fence_async();
    if (key_tiles > 0) load(q_map, shared.q, &shared.q_full, q0);
    for (int j = 0; j < min(kStages, key_tiles); ++j) {
      load(k_map, shared.k[j], &shared.k_full[j], j * kTile);
      load(v_map, shared.v[j], &shared.v_full[j], j * kTile);
    }
  }
  if constexpr (kBias) {
    for (int i = threadIdx.x; i < kDistances; i += kThreads) {
      const int d = i - kDistances / 2;
      shared.bias[i] = make_float2(bias_at(p.bias, p.heads, head, d) * kLog2e,
                                   bias_at(p.bias, p.heads, head, d + 1) * kLog2e);
    }
  }
  __syncthreads();

  const int group = warp / 4;
  const bool leader = threadIdx.x % kGroupThreads == 0;
  Place place;
  place.query = q0 + warp * 16 + lane / 4;
  place.column = 2 * (lane % 4);
  for (int i = 0; i < 2; ++i) {
    place.visible[i] = kCausal ? min(keys, place.query + 8 * i + 1) : keys;
    if constexpr (kSegments) {
      const int query = min(place.query + 8 * i, p.queries - 1);
      place.segment[i] = p.query_segments[std::int64_t{sample} * p.queries + query];
    }
  }
  if constexpr (kSegments) {
    place.key_segments = p.key_segments + std::int64_t{sample} * p.keys;
    place.last_key = p.keys - 1;
  }
  Rows rows = {{-INFINITY, -INFINITY}, {0, 0}};
  float out[32];  // [64, 64] of the warpgroup
#pragma unroll
  for (int i = 0; i < 32; ++i) out[i] = 0;
  std::uint8_t* q_tile = shared.q + group * kTileBytes / 2;
  if (key_tiles > 0) barrier_wait(&shared.q_full, 0);
  Ring<kStages> ring;
  for (int j = 0; j < key_tiles; ++j) {
    // 1. S = Q K^T
    float s[64];
    const std::uint64_t q_desc = tile_descriptor(q_tile);
    const std::uint64_t k_desc = tile_descriptor(shared.k[ring.stage]);
    barrier_wait(&shared.k_full[ring.stage], ring.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma_ss<0, 0>(s, q_desc + k * kStepColumns, k_desc + k * kStepColumns, k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    const bool refill = j + kStages < key_tiles;
    if (refill && lane == 0 && is_last(&shared.k_done[ring.stage])) {
      load(k_map, shared.k[ring.stage], &shared.k_full[ring.stage], (j + kStages) * kTile);
    }

    // 2. Weights
    float rescale[2];
    softmax_any<kCausal, kBias, kSegments>(s, rows, rescale, place, j * kTile, q0, keys,
                                           shared.bias);
    if (__any_sync(~0u, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < 32; ++i) out[i] *= rescale[i / 2 % 2];
    }
    std::uint32_t weights[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) weights[i] = pack(s[2 * i], s[2 * i + 1]);

    // 3. O += P V
    const std::uint64_t v_desc = tile_descriptor(shared.v[ring.stage]);
    barrier_wait(&shared.v_full[ring.stage], ring.parity);
    pin(out);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) wgmma_rs<1>(out, weights + 4 * k, v_desc + k * kStepRows, true);
    wgmma_commit();
    wgmma_wait<0>();
    pin(out);
    if (refill && lane == 0 && is_last(&shared.v_done[ring.stage])) {
      load(v_map, shared.v[ring.stage], &shared.v_full[ring.stage], (j + kStages) * kTile);
    }
    ring.advance();
  }

  // 4. Divide, and write through shared memory: the queries are no longer needed.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float& sum = rows.sum[i];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int query = place.query + 8 * i;
    if (lane % 4 == 0 && query < p.queries) {
      p.lse[static_cast<std::int64_t>(blockIdx.y) * p.queries + query] =
          sum > 0 ? (rows.max[i] + log2f(sum)) * kLn2 : 0.0f;
    }
    // Rows past the end are not stored; as zeros they do not count for the largest, either.
    sum = sum > 0 && query < p.queries ? 1.0f / sum : 0.0f;
  }
  const int row = warp % 4 * 16 + lane % 16;
  std::uint32_t most = 0;  // the largest pair
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    const float* o = out + 4 * n;
    const std::uint32_t r[4] = {
        pack(o[0] * rows.sum[0], o[1] * rows.sum[0]), pack(o[2] * rows.sum[1], o[3] * rows.sum[1]),
        pack(o[4] * rows.sum[0], o[5] * rows.sum[0]), pack(o[6] * rows.sum[1], o[7] * rows.sum[1])};
    store_matrices(shared_address(q_tile) + row * 128 + (((n + lane / 16) ^ (row % 8)) * 16), r);
#pragma unroll
    for (int i = 0; i < 4; ++i) most = larger_pair(most, r[i]);
  }
  fence_async();
  named_barrier<kGroupThreads>(1 + group);
  if (leader) {
    store_tile(&out_map, q_tile, column, q0 + group * kGroupRows, sample);
    stores_commit();
    stores_wait_read();
  }
  if (p.largest != nullptr) say_largest<kLargestSlots>(p.largest, most);
}

}  // namespace

cudaError_t forward(const Attention& a, void* out, float* lse, std::uint32_t* largest,
                    cudaStream_t stream) {
  Params p = {};
  p.heads = a.heads;
  p.queries = a.queries;
  p.keys = a.keys;
  p.query_tiles = (a.queries + kTile - 1) / kTile;
  p.lengths = a.lengths;
  p.query_segments = a.query_segments;
  p.key_segments = a.key_segments;
  p.lse = lse;
  p.largest = largest;
  p.bias = bias_params(a.bias);
  CUtensorMap q_map, k_map, v_map, out_map;
  cudaError_t error = make_tensor_map(&q_map, a.q, a.batch, a.queries, a.heads, a.q_ld, kTile);
  if (error == cudaSuccess) {
    error = make_tensor_map(&k_map, a.k, a.batch, a.keys, a.heads, a.kv_ld, kTile);
  }
  if (error == cudaSuccess) {
    error = make_tensor_map(&v_map, a.v, a.batch, a.keys, a.heads, a.kv_ld, kTile);
  }
  if (error == cudaSuccess) {
    error = make_tensor_map(&out_map, out, a.batch, a.queries, a.heads,
                            std::int64_t{a.heads} * kHeadDim, kGroupRows);
  }
  if (error != cudaSuccess) return error;

  const auto kernel = with_case(a, []<class Case>(Case) {
    return forward_kernel<Case::kCausal, Case::kBias, Case::kSegments>;
  });
  const int bytes = sizeof(Shared);
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  // Blocks of one head side by side: its keys and values are read from memory once.
  const dim3 grid(p.query_tiles, a.batch * a.heads);
  kernel<<<grid, kThreads, bytes, stream>>>(p, q_map, k_map, v_map, out_map);
  return cudaGetLastError();
}

}  // namespace quintet::cuda::sm90
