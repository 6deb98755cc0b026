// Attention forward for any type, head size and mask, in float32 arithmetic. Each block takes 64
// queries of one head and walks over their keys, keeping a running softmax.
#include "runtime/cuda/attention.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/largest.cuh"
#include "runtime/cuda/plain_attention.cuh"

namespace quintet::cuda {
namespace {

// The score of a key that a query may not see.
constexpr float kHidden = -3e38f;

template <class T, int D>
__global__ void __launch_bounds__(kAttentionThreads)
    forward_kernel(AttentionArgs<T> args, T* out, float* lse, Largest largest) {
  extern __shared__ float shared[];
  float* q_tile = shared;                    // [64][D + 1]
  float* k_tile = q_tile + kTile * (D + 1);  // [64][D + 1]
  float* v_tile = k_tile + kTile * (D + 1);  // [64][D + 1]
  float* p_tile = v_tile + kTile * (D + 1);  // [64][65]
  __shared__ float bias[kDiagonals];
  __shared__ int bucket[kDiagonals];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int q0 = blockIdx.x * kTile, h = blockIdx.y, b = blockIdx.z;
  const int valid = args.valid_keys(b);
  const int last = args.seen(min(q0 + kTile, args.queries) - 1, valid);  // keys any of them sees
  MaskReader reader(args.mask, args.drops ? *args.step : 0);

  load_tile<D>(q_tile, args.q_rows(b, h), q0, args.queries, args.dim);
  float acc[4][D / 16] = {}, max[4], sum[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) max[i] = kHidden;
  for (int k0 = 0; k0 < last; k0 += kTile) {
    __syncthreads();
    load_tile<D>(k_tile, args.k_rows(b, h), k0, valid, args.dim);
    load_tile<D>(v_tile, args.v_rows(b, h), k0, valid, args.dim);
    load_bias(args, h, q0, k0, bias, bucket);
    __syncthreads();
    float s[4][4];
    row_products<D>(q_tile, k_tile, args.dim, s);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = q0 + 4 * ty + i;
      const int seen = query < args.queries ? args.seen(query, valid) : 0;
      float highest = max[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = tx + 16 * j;
        if (args.table != nullptr) s[i][j] += bias[c - (4 * ty + i) + kTile - 1];
        if (k0 + c >= seen || !args.same_segment(b, query, k0 + c)) s[i][j] = kHidden;
        highest = fmaxf(highest, s[i][j]);
      }
      highest = row_reduce(highest, [](float x, float y) { return fmaxf(x, y); });
      const float shrink = expf(max[i] - highest);
      max[i] = highest;
      float total = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = k0 + tx + 16 * j;
        float p = s[i][j] == kHidden ? 0.0f : expf(s[i][j] - highest);
        total += p;
        if (args.drops && p > 0) p *= reader.factor(args.mask_row(b, h, query) + key);
        p_tile[(4 * ty + i) * (kTile + 1) + tx + 16 * j] = p;
      }
      total = row_reduce(total, [](float x, float y) { return x + y; });
      sum[i] = sum[i] * shrink + total;
#pragma unroll
      for (int j = 0; j < D / 16; ++j) acc[i][j] *= shrink;
    }
    __syncthreads();
    tile_product<D, false>(p_tile, v_tile, acc);
  }
  const std::int64_t width = std::int64_t{args.heads} * args.dim;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = q0 + 4 * ty + i;
    if (query >= args.queries) continue;
    const bool any = sum[i] > 0;
    const float inverse = any ? 1.0f / sum[i] : 0.0f;
    T* row = out + (std::int64_t{b} * args.queries + query) * width + h * args.dim;
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      const float value[1] = {acc[i][j] * inverse};
      if (tx + 16 * j < args.dim) largest.template store<1>(row + tx + 16 * j, value);
    }
    if (tx == 0) {
      lse[(std::int64_t{b} * args.heads + h) * args.queries + query] =
          any ? max[i] + logf(sum[i]) : 0.0f;
    }
  }
  largest.say();
}

}  // namespace

void plain_attention(const OpContext& op) {
  const Shape& q = op.in(attention::kQ).shape;
  const auto& attrs = op.attrs<AttentionAttrs>();
  const Largest largest(empty_slots(op, attention::kLargest, op.in(attention::kQ).dtype));
  with_device_type(op.in(attention::kQ).dtype, [&]<class T>(T) {
    const auto args = attention_args<T>(
        op, {attention::kQ, attention::kKv, attention::kBias, attention::kLengths, attention::kStep,
             attention::kQuerySegments, attention::kKeySegments});
    with_head_size(attrs.head_dim, [&]<int D>() {
      const auto kernel = forward_kernel<T, D>;
      constexpr int kBytes = 4 * (3 * kTile * (D + 1) + kTile * (kTile + 1));
      QT_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
      const dim3 grid(static_cast<unsigned>(ceil_div(q[1], kTile)),
                      static_cast<unsigned>(attrs.heads), static_cast<unsigned>(q[0]));
      kernel<<<grid, kAttentionThreads, kBytes, op.stream()>>>(
          args, op.out_data<T>(attention::kOut), op.out_data<float>(attention::kLogSumExp),
          largest);
      QT_LAUNCHED();
    });
  });
}

}  // namespace quintet::cuda
