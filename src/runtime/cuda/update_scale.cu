#include "program/ops/update_scale.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

constexpr int kThreads = 256;

// Block b sums its own share of x; the second kernel adds up the blocks' sums. Both in a fixed
// order.
template <class T, int N>
__global__ void squares_kernel(const T* x, std::int64_t count, double* partial) {
  __shared__ double shared[kThreads / 32];
  const std::int64_t packs = count / N;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  double total = 0;
  constexpr int kUnroll = 4;  // loads in flight
  for (std::int64_t i = first; i < packs; i += stride * kUnroll) {
    float sum = 0;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t at = i + u * stride;
      if (at >= packs) break;
      float value[N];
      load_floats<N>(x + at * N, value);
#pragma unroll
      for (int j = 0; j < N; ++j) sum += value[j] * value[j];
    }
    total += static_cast<double>(sum);
  }
  for (std::int64_t i = packs * N + first; i < count; i += stride) {
    const float value = to_float(x[i]);
    total += static_cast<double>(value * value);
  }
  total = block_sum<kThreads>(total, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// One block adds up a few values.
template <class T>
__global__ void sum_kernel(const T* x, std::int64_t count, float* sum) {
  __shared__ double shared[kThreads / 32];
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) total += static_cast<double>(x[i]);
  total = block_sum<kThreads>(total, shared);
  if (threadIdx.x == 0) *sum = static_cast<float>(total);
}

// Without limits, `loss` and `limits` are null.
__global__ void scale_kernel(const float* squares, std::int64_t count, float clip,
                             const float* loss, const float* limits, float* norm_out,
                             float* scale_out) {
  __shared__ double shared[kThreads / 32];
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads)
    total += static_cast<double>(squares[i]);
  total = block_sum<kThreads>(total, shared);
  if (threadIdx.x != 0) return;
  const auto norm = static_cast<float>(sqrt(total));
  float scale = clip > 0 ? fminf(1.0f, clip / (norm + 1e-6f)) : 1.0f;
  bool leave = !isfinite(norm);
  if (limits != nullptr) leave = leave || !isfinite(*loss) || *loss > limits[0] || norm > limits[1];
  if (leave) scale = __int_as_float(0x7fc00000);
  *norm_out = norm;
  *scale_out = scale;
}

}  // namespace

void squared_norm(const OpContext& op) {
  const std::int64_t count = op.in(squared_norm::kX).shape.numel();
  auto* partial = op.scratch<double>();
  with_device_type(op.in(squared_norm::kX).dtype, [&]<class T>(T) {
    const auto* x = op.in_data<T>(squared_norm::kX);
    const bool wide = is_wide(x);
    const auto blocks = static_cast<unsigned>(squared_norm::device_blocks(count));
    const auto kernel = wide ? squares_kernel<T, kWide<T>> : squares_kernel<T, 1>;
    kernel<<<blocks, kThreads, 0, op.stream()>>>(x, count, partial);
    QT_LAUNCHED();
    sum_kernel<<<1, kThreads, 0, op.stream()>>>(partial, std::int64_t{blocks},
                                                op.out_data<float>(squared_norm::kSum));
    QT_LAUNCHED();
  });
}

void sum(const OpContext& op) {
  sum_kernel<<<1, kThreads, 0, op.stream()>>>(
      op.in_data<float>(sum::kX), op.in(sum::kX).shape.numel(), op.out_data<float>(sum::kY));
  QT_LAUNCHED();
}

void update_scale(const OpContext& op) {
  scale_kernel<<<1, kThreads, 0, op.stream()>>>(
      op.in_data<float>(update_scale::kSquares), op.in(update_scale::kSquares).shape.numel(),
      op.attrs<UpdateScaleAttrs>().clip_norm, op.in_data<float>(update_scale::kLoss),
      op.in_data<float>(update_scale::kLimits), op.out_data<float>(update_scale::kNorm),
      op.out_data<float>(update_scale::kScale));
  QT_LAUNCHED();
}

}  // namespace quintet::cuda
