// Attention backward for any type, head size and mask, in float32 arithmetic and without atomics:
// one kernel walks over the queries of 64 keys for dK and dV, another over the keys of 64 queries
// for dQ and the bias. With P the softmax, M the dropout factors and D = rowsum(dO * O):
//   dV = (P M)^T dO,  dS = P (M (dO V^T) - D),  dQ = dS K,  dK = dS^T Q,  d(bias)[bucket] = sum of
//   dS.
#include "runtime/cuda/attention.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/largest.cuh"
#include "runtime/cuda/plain_attention.cuh"
#include "runtime/cuda/reduce.cuh"

namespace quintet::cuda {
namespace {

// D of every row; a warp each. Rows are (sequence, query, head) in the order of memory.
template <class T>
__global__ void delta_kernel(const T* d_out, const T* out, int heads, int queries, int dim,
                             std::int64_t rows, float* delta) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kAttentionThreads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  float sum = 0;
  for (int i = threadIdx.x % 32; i < dim; i += 32)
    sum += to_float(d_out[row * dim + i]) * to_float(out[row * dim + i]);
  sum = warp_sum(sum);
  const std::int64_t token = row / heads, h = row % heads, b = token / queries;
  if (threadIdx.x % 32 == 0) delta[(b * heads + h) * queries + token % queries] = sum;
}

// P M and dS of one tile, from the products s = Q K^T and dp = dO V^T. Zero where a query does not
// see a key.
template <class T>
__device__ __forceinline__ void softmax_gradient(const AttentionArgs<T>& args, int b, int h, int q0,
                                                 int k0, int valid, const float* bias,
                                                 const float* lse, const float* delta,
                                                 MaskReader& reader, float (&s)[4][4],
                                                 float (&dp)[4][4]) {
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = 4 * ty + i, query = q0 + r;
    const int seen = query < args.queries ? args.seen(query, valid) : 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int c = tx + 16 * j, key = k0 + c;
      float p = 0, ds = 0;
      if (key < seen && args.same_segment(b, query, key)) {
        if (args.table != nullptr) s[i][j] += bias[c - r + kTile - 1];
        p = expf(s[i][j] - lse[r]);
        const float keep = args.drops ? reader.factor(args.mask_row(b, h, query) + key) : 1.0f;
        ds = p * (dp[i][j] * keep - delta[r]);
        p *= keep;
      }
      s[i][j] = p;
      dp[i][j] = ds;
    }
  }
}

__device__ __forceinline__ void store_tile(float* tile, const float (&values)[4][4]) {
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) tile[(4 * ty + i) * (kTile + 1) + tx + 16 * j] = values[i][j];
  }
}

template <class T>
struct Gradients {
  const T* d_out;
  const float *lse, *delta;
  T *dq, *dk, *dv;
  float* bucket_sums;  // [b, heads, query tiles, buckets]; null without bias
  int bucket_count;
};

template <class T>
__device__ __forceinline__ HeadRows<const T> d_out_rows(const AttentionArgs<T>& args,
                                                        const Gradients<T>& g, int b, int h) {
  const std::int64_t width = std::int64_t{args.heads} * args.dim;
  return {g.d_out + std::int64_t{b} * args.queries * width + h * args.dim, width};
}

template <class T>
__device__ __forceinline__ void load_row_values(const AttentionArgs<T>& args, const Gradients<T>& g,
                                                int b, int h, int q0, float* lse, float* delta) {
  for (int i = threadIdx.x; i < kTile; i += kAttentionThreads) {
    const std::int64_t at = (std::int64_t{b} * args.heads + h) * args.queries + q0 + i;
    const bool inside = q0 + i < args.queries;
    lse[i] = inside ? g.lse[at] : 0.0f;
    delta[i] = inside ? g.delta[at] : 0.0f;
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kAttentionThreads)
    keys_kernel(AttentionArgs<T> args, Gradients<T> g, Largest largest) {
  extern __shared__ float shared[];
  constexpr int kRows = kTile * (D + 1), kScores = kTile * (kTile + 1);
  float *k_tile = shared, *v_tile = k_tile + kRows, *q_tile = v_tile + kRows;
  float *do_tile = q_tile + kRows, *p_tile = do_tile + kRows, *ds_tile = p_tile + kScores;
  __shared__ float bias[kDiagonals], lse[kTile], delta[kTile];
  __shared__ int bucket[kDiagonals];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int k0 = blockIdx.x * kTile, h = blockIdx.y, b = blockIdx.z;
  const int valid = args.valid_keys(b);
  MaskReader reader(args.mask, args.drops ? *args.step : 0);
  load_tile<D>(k_tile, args.k_rows(b, h), k0, valid, args.dim);
  load_tile<D>(v_tile, args.v_rows(b, h), k0, valid, args.dim);
  float dk[4][D / 16] = {}, dv[4][D / 16] = {};
  const int first = args.causal ? k0 : 0;  // queries before see none of these keys
  for (int q0 = first; q0 < args.queries && k0 < valid; q0 += kTile) {
    __syncthreads();
    load_tile<D>(q_tile, args.q_rows(b, h), q0, args.queries, args.dim);
    load_tile<D>(do_tile, d_out_rows(args, g, b, h), q0, args.queries, args.dim);
    load_row_values(args, g, b, h, q0, lse, delta);
    load_bias(args, h, q0, k0, bias, bucket);
    __syncthreads();
    float s[4][4], dp[4][4];
    row_products<D>(q_tile, k_tile, args.dim, s);
    row_products<D>(do_tile, v_tile, args.dim, dp);
    softmax_gradient(args, b, h, q0, k0, valid, bias, lse, delta, reader, s, dp);
    store_tile(p_tile, s);
    store_tile(ds_tile, dp);
    __syncthreads();
    tile_product<D, true>(p_tile, do_tile, dv);
    tile_product<D, true>(ds_tile, q_tile, dk);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = k0 + 4 * ty + i;
    if (key >= args.keys) continue;
    const std::int64_t at = (std::int64_t{b} * args.keys + key) * args.kv_ld + h * args.dim;
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      if (tx + 16 * j >= args.dim) continue;
      const float of_key[1] = {dk[i][j]}, of_value[1] = {dv[i][j]};
      largest.template store<1>(g.dk + at + tx + 16 * j, of_key);
      largest.template store<1>(g.dv + at + tx + 16 * j, of_value);
    }
  }
  largest.say();
}

template <class T, int D>
__global__ void __launch_bounds__(kAttentionThreads)
    queries_kernel(AttentionArgs<T> args, Gradients<T> g, Largest largest) {
  extern __shared__ float shared[];
  constexpr int kRows = kTile * (D + 1);
  float *q_tile = shared, *do_tile = q_tile + kRows, *k_tile = do_tile + kRows;
  float *v_tile = k_tile + kRows, *ds_tile = v_tile + kRows;
  __shared__ float bias[kDiagonals], lse[kTile], delta[kTile], diagonal[kDiagonals];
  __shared__ int bucket[kDiagonals];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int q0 = blockIdx.x * kTile, h = blockIdx.y, b = blockIdx.z;
  const int valid = args.valid_keys(b);
  const int last = args.seen(min(q0 + kTile, args.queries) - 1, valid);
  MaskReader reader(args.mask, args.drops ? *args.step : 0);
  load_tile<D>(q_tile, args.q_rows(b, h), q0, args.queries, args.dim);
  load_tile<D>(do_tile, d_out_rows(args, g, b, h), q0, args.queries, args.dim);
  load_row_values(args, g, b, h, q0, lse, delta);
  float dq[4][D / 16] = {};
  float bucket_sum = 0;  // of bucket threadIdx.x
  for (int k0 = 0; k0 < last; k0 += kTile) {
    __syncthreads();
    load_tile<D>(k_tile, args.k_rows(b, h), k0, valid, args.dim);
    load_tile<D>(v_tile, args.v_rows(b, h), k0, valid, args.dim);
    load_bias(args, h, q0, k0, bias, bucket);
    __syncthreads();
    float s[4][4], dp[4][4];
    row_products<D>(q_tile, k_tile, args.dim, s);
    row_products<D>(do_tile, v_tile, args.dim, dp);
    softmax_gradient(args, b, h, q0, k0, valid, bias, lse, delta, reader, s, dp);
    store_tile(ds_tile, dp);
    __syncthreads();
    tile_product<D, false>(ds_tile, k_tile, dq);
    if (g.bucket_sums == nullptr) continue;
    if (threadIdx.x < kDiagonals) {
      const int shift = static_cast<int>(threadIdx.x) - (kTile - 1);  // key - query
      float sum = 0;
      for (int r = max(0, -shift); r < min(kTile, kTile - shift); ++r)
        sum += ds_tile[r * (kTile + 1) + r + shift];
      diagonal[threadIdx.x] = sum;
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < g.bucket_count) {
      for (int i = 0; i < kDiagonals; ++i)
        if (bucket[i] == static_cast<int>(threadIdx.x)) bucket_sum += diagonal[i];
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = q0 + 4 * ty + i;
    if (query >= args.queries) continue;
    T* row = g.dq + (std::int64_t{b} * args.queries + query) * args.q_ld + h * args.dim;
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      const float value[1] = {dq[i][j]};
      if (tx + 16 * j < args.dim) largest.template store<1>(row + tx + 16 * j, value);
    }
  }
  largest.say();
  if (g.bucket_sums != nullptr && static_cast<int>(threadIdx.x) < g.bucket_count) {
    const std::int64_t item = (std::int64_t{b} * args.heads + h) * gridDim.x + blockIdx.x;
    g.bucket_sums[item * g.bucket_count + threadIdx.x] = bucket_sum;
  }
}

// d_table[bucket][head] (+)= the sum over sequences and query tiles, in order; a block a head,
// threads (bucket, share of the items).
template <class G>
__global__ void bias_gradient_kernel(const float* sums, int batch, int heads, int tiles,
                                     int buckets, bool accumulate, G* d_table) {
  extern __shared__ float shared[];  // [blockDim.y][buckets]
  const int bucket = threadIdx.x, h = blockIdx.x;
  float sum = 0;
  for (int item = threadIdx.y; item < batch * tiles; item += blockDim.y) {
    const std::int64_t b = item / tiles, tile = item % tiles;
    sum += sums[((b * heads + h) * tiles + tile) * buckets + bucket];
  }
  shared[threadIdx.y * buckets + bucket] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return;
  G& entry = d_table[bucket * heads + h];
  float total = accumulate ? to_float(entry) : 0.0f;
  for (unsigned y = 0; y < blockDim.y; ++y) total += shared[y * buckets + bucket];
  entry = from_float<G>(total);
}

}  // namespace

void plain_attention_backward(const OpContext& op) {
  using namespace attention_backward;
  const Shape& q = op.in(kQ).shape;
  const auto& attrs = op.attrs<AttentionAttrs>();
  const bool cross = op.has_in(kKv);
  const std::int64_t keys = cross ? op.in(kKv).shape[1] : q[1];
  const std::int64_t width = std::int64_t{attrs.heads} * attrs.head_dim;
  const auto layout = attention::DeviceScratch::backward(q[0], q[1], attrs.heads, attrs.buckets);
  auto* delta = op.scratch<float>();
  auto* bucket_sums = op.has_in(kBias) ? op.scratch<float>(layout.sums_offset) : nullptr;
  const auto heads = static_cast<unsigned>(attrs.heads), batch = static_cast<unsigned>(q[0]);
  const auto query_tiles = static_cast<unsigned>(ceil_div(q[1], kTile));
  auto* d_q_slots = empty_slots(op, kDQLargest, op.in(kQ).dtype);
  auto* d_kv_slots = cross ? empty_slots(op, kDKvLargest, op.in(kQ).dtype) : d_q_slots;
  with_device_type(op.in(kQ).dtype, [&]<class T>(T) {
    const auto args =
        attention_args<T>(op, {kQ, kKv, kBias, kLengths, kStep, kQuerySegments, kKeySegments});
    T* dq = op.out_data<T>(kDQ);
    T* dk = cross ? op.out_data<T>(kDKv) : dq + width;
    const Gradients<T> g{
        op.in_data<T>(kDOut), op.in_data<float>(kLogSumExp), delta, dq, dk, dk + width, bucket_sums,
        attrs.buckets};
    const std::int64_t rows = q[0] * q[1] * attrs.heads;
    delta_kernel<<<static_cast<unsigned>(ceil_div(rows, kAttentionThreads / 32)), kAttentionThreads,
                   0, op.stream()>>>(g.d_out, op.in_data<T>(kOut), attrs.heads,
                                     static_cast<int>(q[1]), attrs.head_dim, rows, delta);
    QT_LAUNCHED();
    with_head_size(attrs.head_dim, [&]<int D>() {
      constexpr int kRows = kTile * (D + 1), kScores = kTile * (kTile + 1);
      constexpr int kKeyBytes = 4 * (4 * kRows + 2 * kScores);
      constexpr int kQueryBytes = 4 * (4 * kRows + kScores);
      QT_CUDA(cudaFuncSetAttribute(keys_kernel<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kKeyBytes));
      QT_CUDA(cudaFuncSetAttribute(queries_kernel<T, D>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, kQueryBytes));
      const dim3 key_grid(static_cast<unsigned>(ceil_div(keys, kTile)), heads, batch);
      keys_kernel<T, D>
          <<<key_grid, kAttentionThreads, kKeyBytes, op.stream()>>>(args, g, Largest(d_kv_slots));
      QT_LAUNCHED();
      const dim3 query_grid(query_tiles, heads, batch);
      queries_kernel<T, D><<<query_grid, kAttentionThreads, kQueryBytes, op.stream()>>>(
          args, g, Largest(d_q_slots));
      QT_LAUNCHED();
    });
  });
  if (bucket_sums == nullptr) return;
  with_device_type(op.out(kDBias).dtype, [&]<class G>(G) {
    const auto buckets = static_cast<unsigned>(attrs.buckets), shares = 1024 / buckets;
    bias_gradient_kernel<<<heads, dim3(buckets, shares), 4 * buckets * shares, op.stream()>>>(
        bucket_sums, static_cast<int>(batch), attrs.heads, static_cast<int>(query_tiles),
        attrs.buckets, op.has_in(kDBiasAddend), op.out_data<G>(kDBias));
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
