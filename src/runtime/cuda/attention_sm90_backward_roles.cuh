// Parts of the Hopper attention backward (attention_sm90_backward.cu says how they work together):
// what its warps share, and the roles beside the matrix products: the warp that feeds tiles, and
// the warps that sum the gradient of the bias. Included by that file only.
#pragma once

#include "runtime/cuda/attention_sm90_common.h"
#include "runtime/cuda/attention_sm90_device.cuh"

namespace quintet::cuda::sm90 {
namespace {

constexpr int kStages = 2;
constexpr int kThreads = 3 * kGroupThreads;
constexpr int kMultiplyRegisters = 232, kServiceRegisters = 40;
constexpr int kMultiplyBarrier = 4;

struct Shared {
  alignas(1024) std::uint8_t k[kStages][kTileBytes];  // later dK
  alignas(1024) std::uint8_t v[kStages][kTileBytes];  // later dV
  alignas(1024) std::uint8_t q[kStages][kTileBytes];
  alignas(1024) std::uint8_t d_out[kStages][kTileBytes];
  alignas(1024) std::uint8_t ds[kStages][2][kTileBytes];  // [query half][keys, 64 queries]
  float4 stats[kStages][kTile / 2];  // of queries 2i and 2i + 1: {lse, lse, D, D}, lse * log2(e)
  float2 bias[2]
             [kDistances];  // {bias of distance d, of d - 1} * log2(e); for this item and the next
  // Sums of dS over 8x8 blocks (key in the block, query in the block), by distance in blocks + 32.
  float blocks[kDistances / 8][64];
  std::uint32_t d_q_most[2 * kGroupThreads];  // of each thread that multiplies: pairs of bf16
  std::uint64_t kv_full[kStages], kv_empty[kStages], q_full[kStages], q_empty[kStages];
  std::uint64_t ds_full[kStages], ds_empty[kStages], bias_full[2];
};

struct Params {
  int batch, heads, queries, keys, query_tiles;
  const std::int32_t *lengths, *query_segments, *key_segments;
  __nv_bfloat16 *d_q, *d_k, *d_v;
  std::int64_t q_ld, kv_ld;
  const float4* stats;                        // [b, h, query_tiles * 64] of {lse, lse, D, D}
  float4* d_q_sums;                           // [blocks, query_tiles, 2, 8, 128 threads]
  float* d_bias_sums;                         // [b, h, kDistances]
  float2* d_far_sums;                         // [b, h, 8 warps]: keys before, keys after the query
  std::uint32_t *d_q_largest, *d_kv_largest;  // [kLargestSlots] or null
  BiasParams bias;
};

// One (sample, head), and the order of its tiles, which all roles follow.
template <bool kCausal>
struct Item {
  int index, sample, head, keys, key_tiles;

  __device__ __forceinline__ Item(const Params& p, int index)
      : index(index), sample(index / p.heads), head(index % p.heads) {
    keys = p.lengths == nullptr ? p.keys : min(max(p.lengths[sample], 0), p.keys);
    key_tiles = (keys + kTile - 1) / kTile;
    if (kCausal) key_tiles = min(key_tiles, p.query_tiles);  // later keys are seen by nobody
  }
  // The query tiles that see a tile of keys, and the n-th of them: forth for even tiles of keys,
  // back for odd ones, so that what was used last is used next and still in the L2 cache.
  __device__ __forceinline__ int query_tiles_of(const Params& p, int key_tile) const {
    return p.query_tiles - (kCausal ? key_tile : 0);
  }
  __device__ __forceinline__ int query_tile(const Params& p, int key_tile, int n) const {
    return key_tile % 2 == 0 ? (kCausal ? key_tile + n : n) : p.query_tiles - 1 - n;
  }
  __device__ __forceinline__ int last_key_tile(int query_tile) const {
    return kCausal ? min(query_tile, key_tiles - 1) : key_tiles - 1;
  }
};

__device__ __forceinline__ bool on_band(int key_tile, int query_tile) {
  return abs(key_tile - query_tile) <= 1;
}

// --- The warp that feeds -------------------------------------------------------------------------

// Tiles go through the copy engine; the few numbers per query through registers, fetched before the
// wait for their place.
template <bool kCausal>
__device__ __forceinline__ void feed(const Params& p, Shared& shared, int lane,
                                     const CUtensorMap& q_map, const CUtensorMap& k_map,
                                     const CUtensorMap& v_map, const CUtensorMap& d_out_map) {
  Ring<kStages> kv, q;
  for (int index = blockIdx.x; index < p.batch * p.heads; index += gridDim.x) {
    const Item<kCausal> item(p, index);
    const int column = item.head * kHeadDim;
    for (int j = 0; j < item.key_tiles; ++j) {
      if (lane == 0) {
        std::uint64_t* full = &shared.kv_full[kv.stage];
        barrier_wait(&shared.kv_empty[kv.stage], kv.parity ^ 1);
        barrier_expect(full, 2 * kTileBytes);
        load_tile(shared.k[kv.stage], &k_map, full, column, j * kTile, item.sample, kKeepShort);
        load_tile(shared.v[kv.stage], &v_map, full, column, j * kTile, item.sample, kKeepShort);
      }
      kv.advance();
      for (int n = 0; n < item.query_tiles_of(p, j); ++n) {
        const int i = item.query_tile(p, j, n);
        const float4* stats = p.stats + (std::int64_t{index} * p.query_tiles + i) * (kTile / 2);
        const float4 low = stats[lane], high = stats[lane + 32];
        barrier_wait(&shared.q_empty[q.stage], q.parity ^ 1);
        shared.stats[q.stage][lane] = low;
        shared.stats[q.stage][lane + 32] = high;
        std::uint64_t* full = &shared.q_full[q.stage];
        if (lane != 0) {
          barrier_arrive(full);
        } else {
          barrier_expect(full, 2 * kTileBytes);
          load_tile(shared.q[q.stage], &q_map, full, column, i * kTile, item.sample);
          load_tile(shared.d_out[q.stage], &d_out_map, full, column, i * kTile, item.sample,
                    kKeepShort);
        }
        __syncwarp();
        q.advance();
      }
    }
  }
}

// --- The warps that sum the gradient of the bias -------------------------------------------------

constexpr int kSumWarps = 3, kSumThreads = 32 * kSumWarps, kSumBarrier = 3;

// Adds the 8x8 blocks of a tile on the band, elementwise, along diagonals of blocks. A diagonal
// that leaves the tile goes on at the other side, 16 blocks nearer: diagonal w has distances w and
// w - 16. So each distance belongs to one warp throughout, and each element of its sum to one
// thread; and all diagonals have 16 blocks, loaded together.
__device__ __forceinline__ void add_blocks(Shared& shared, const std::uint8_t* ds, int base,
                                           int warp, int lane) {
  const std::uint32_t ds_at = shared_address(ds) + lane % 8 * 128;
#pragma unroll 1
  for (int w = warp; w < 16; w += kSumWarps) {
    std::uint32_t a[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const unsigned query = 4 * step + lane / 8, key = (query + w) % 16;
      load_matrices(a[step],
                    ds_at + query / 8 * kTileBytes + key * 1024 + ((query ^ lane) % 8) * 16);
    }
    float2 all[2] = {}, near[2] = {};
#pragma unroll
    for (int block = 0; block < 16; ++block) {
      const float inside = block < 16 - w ? 1.0f : 0.0f;
      const std::uint32_t pair = a[block / 4][block % 4];
      const float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
      float2 &all_sum = all[block % 2], &near_sum = near[block % 2];
      all_sum.x += low;
      all_sum.y += high;
      near_sum.x = fmaf(inside, low, near_sum.x);
      near_sum.y = fmaf(inside, high, near_sum.y);
    }
    float2* to = reinterpret_cast<float2*>(shared.blocks[base + w + 32]) + lane;
    const float2 inner = make_float2(near[0].x + near[1].x, near[0].y + near[1].y);
    to->x += inner.x;
    to->y += inner.y;
    if (w == 0) continue;
    to -= 16 * 32;
    to->x += all[0].x + all[1].x - inner.x;
    to->y += all[0].y + all[1].y - inner.y;
  }
}

// The bias by distance of an item that will come, if it comes.
__device__ __forceinline__ void build_bias(const Params& p, Shared& shared, int index, int slot,
                                           int thread) {
  if (index < p.batch * p.heads) {
    const int head = index % p.heads;
    for (int i = thread; i < kDistances; i += kSumThreads) {
      const int d = i - kDistances / 2;
      shared.bias[slot][i] = make_float2(bias_at(p.bias, p.heads, head, d) * kLog2e,
                                         bias_at(p.bias, p.heads, head, d - 1) * kLog2e);
    }
  }
  barrier_arrive(&shared.bias_full[slot]);
}

// Warp 0 to 2 of those that sum.
template <bool kCausal>
__device__ __forceinline__ void sum_bias_gradient(const Params& p, Shared& shared, int warp,
                                                  int lane) {
  const int thread = warp * 32 + lane;
  build_bias(p, shared, blockIdx.x, 0, thread);
  Ring<kStages> ring;
  Ring<2> slot;
  for (int index = blockIdx.x; index < p.batch * p.heads; index += gridDim.x) {
    const Item<kCausal> item(p, index);
    // All tiles of the item before have come through here: nobody reads its bias any more.
    slot.advance();
    build_bias(p, shared, index + gridDim.x, slot.stage, thread);
    for (int i = thread; i < kDistances * 8; i += kSumThreads) shared.blocks[0][i] = 0;
    named_barrier<kSumThreads>(kSumBarrier);
    for (int j = 0; j < item.key_tiles; ++j) {
      for (int n = 0; n < item.query_tiles_of(p, j); ++n) {
        const int i = item.query_tile(p, j, n);
        barrier_wait(&shared.ds_full[ring.stage], ring.parity);
        if (on_band(j, i)) {
          add_blocks(shared, shared.ds[ring.stage][0], (j - i) * (kTile / 8), warp, lane);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&shared.ds_empty[ring.stage]);
        ring.advance();
      }
    }
    named_barrier<kSumThreads>(kSumBarrier);
    // Distance 8 D + r has r = key - query inside blocks of distance D, and r - 8 in those of D
    // + 1.
    float* to = p.d_bias_sums + std::int64_t{index} * kDistances;
    for (int i = thread; i < kDistances; i += kSumThreads) {
      const int r = i % 8;
      float sum = 0;
#pragma unroll
      for (int query = 0; query < 8; ++query) {
        const bool same = query + r < 8;
        const int block = i / 8 + (same ? 0 : 1), key = query + r - (same ? 0 : 8);
        if (block < kDistances / 8) sum += shared.blocks[block][key * 8 + query];
      }
      to[i] = sum;
    }
    named_barrier<kSumThreads>(kSumBarrier);
  }
}

}  // namespace
}  // namespace quintet::cuda::sm90
