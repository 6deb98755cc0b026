#include <algorithm>
#include <cmath>
#include <vector>

#include "program/ops/linear_cross_entropy.h"
#include "program/ops/matmul.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

// For each chunk of tokens: logits = scale X W^T; one kernel turns them into the loss of each token
// and, in place, into d(loss)/d(logits); then dX = scale dL W and dW += scale dL^T X.

namespace quintet::cuda {

namespace lce = linear_cross_entropy;

namespace {

constexpr int kThreads = 1024;

// A maximum and the sum of exponentials relative to it.
struct MaxSum {
  float max, sum;
};
__device__ __forceinline__ MaxSum join(MaxSum a, MaxSum b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}
__device__ MaxSum block_join(MaxSum mine, MaxSum* shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const MaxSum other{__shfl_xor_sync(~0u, mine.max, offset),
                       __shfl_xor_sync(~0u, mine.sum, offset)};
    mine = join(mine, other);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  MaxSum all = shared[0];
  for (int i = 1; i < kThreads / 32; ++i) all = join(all, shared[i]);
  return all;
}

template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return __expf(x);
  }
}

// Where the words are spread over ranks, what a token's row says here; after the exchange, of all.
struct RowStats {
  float *max, *sum, *target;  // [chunk] each, the last two side by side
};

// What a label asks for: this of its own word, and this of each.
struct Target {
  float own, each;
};

template <class T, int N>
__device__ MaxSum row_max_sum(const T* row, int words, MaxSum* shared) {
  const int packs = static_cast<int>(ceil_div(words, N));  // the last one may be cut short
  MaxSum mine{-3e38f, 0};
  for (int p = threadIdx.x; p < packs; p += kThreads) {
    float value[N];
    load_floats<N>(row + p * N, value);  // rows are padded to whole packs
    float max = mine.max;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (p * N + j >= words) value[j] = -3e38f;
      max = fmaxf(max, value[j]);
    }
    float sum = mine.sum * exponential<T>(mine.max - max);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += exponential<T>(value[j] - max);
    mine = {max, sum};
  }
  return block_join(mine, shared);
}

// The logit that the label asks for, as far as its words are here; for all threads of a block.
template <class T, int N>
__device__ float target_logit(const T* row, int words, std::int64_t label, Target target) {
  __shared__ float shared[kThreads / 32];
  const float own = label >= 0 && label < words ? target.own * to_float(row[label]) : 0.0f;
  if (target.each == 0) return own;
  float sum = 0;
  for (int p = threadIdx.x; p < static_cast<int>(ceil_div(words, N)); p += kThreads) {
    float value[N];
    load_floats<N>(row + p * N, value);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += p * N + j < words ? value[j] : 0.0f;
  }
  return own + target.each * block_sum<kThreads>(sum, shared);
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    stats_kernel(const T* logits, std::int64_t ld, int words, const std::int32_t* labels,
                 std::int64_t first_word, Target target, RowStats stats) {
  __shared__ MaxSum shared[kThreads / 32];
  const T* row = logits + std::int64_t{blockIdx.x} * ld;
  const MaxSum all = row_max_sum<T, N>(row, words, shared);
  const float logit = target_logit<T, N>(row, words, labels[blockIdx.x] - first_word, target);
  if (threadIdx.x != 0) return;
  stats.max[blockIdx.x] = all.max;
  stats.sum[blockIdx.x] = all.sum;
  stats.target[blockIdx.x] = logit;
}

// One block a token. d(loss)/d(logit) = (softmax (1 + 2 z lse) - target) / count. With stats of all
// ranks, those are taken instead of this rank's own.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    loss_kernel(T* logits, std::int64_t ld, int words, const std::int32_t* labels,
                std::int64_t first_word, const float* count, float z_loss, Target target,
                bool gradients, bool have_stats, RowStats stats, float* cross_entropies,
                float* z_losses) {
  __shared__ MaxSum shared[kThreads / 32];
  T* row = logits + std::int64_t{blockIdx.x} * ld;
  const std::int32_t label_id = labels[blockIdx.x];
  const int packs = static_cast<int>(ceil_div(words, N));  // the last one may be cut short
  if (label_id < 0) {
    if (threadIdx.x == 0) cross_entropies[blockIdx.x] = z_losses[blockIdx.x] = 0;
    if (!gradients) return;
    for (int i = threadIdx.x; i < words; i += kThreads) row[i] = from_float<T>(0.0f);
    return;
  }
  const MaxSum all = have_stats ? MaxSum{stats.max[blockIdx.x], stats.sum[blockIdx.x]}
                                : row_max_sum<T, N>(row, words, shared);
  const float lse = all.max + logf(all.sum);
  const std::int64_t label = label_id - first_word;
  const float logit =
      have_stats ? stats.target[blockIdx.x] : target_logit<T, N>(row, words, label, target);
  if (threadIdx.x == 0) {
    cross_entropies[blockIdx.x] = lse - logit;
    z_losses[blockIdx.x] = z_loss * lse * lse;
  }
  if (!gradients) return;
  __syncthreads();  // the logits are about to be overwritten
  const float inverse_count = *count > 0 ? 1.0f / *count : 0.0f;
  const float factor = (1 + 2 * z_loss * lse) * inverse_count / all.sum;
  const float own = target.own * inverse_count, each = target.each * inverse_count;
  // Backwards: the end of the row is what the cache still has.
  for (int p = packs - 1 - static_cast<int>(threadIdx.x); p >= 0; p -= kThreads) {
    float value[N];
    load_floats<N>(row + p * N, value);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      value[j] = exponential<T>(value[j] - all.max) * factor - each;
      if (p * N + j == label) value[j] -= own;
    }
    store_floats<N>(row + p * N, value);
  }
}

// Adds a chunk's losses to the step's, in order.
__global__ void add_losses_kernel(const float* cross_entropies, const float* z_losses, int rows,
                                  const float* count, const float* addend, float* loss) {
  __shared__ double shared[8];
  double ce = 0, z = 0;
  for (int i = threadIdx.x; i < rows; i += 256) {
    ce += static_cast<double>(cross_entropies[i]);
    z += static_cast<double>(z_losses[i]);
  }
  ce = block_sum<256>(ce, shared);
  z = block_sum<256>(z, shared);
  if (threadIdx.x != 0) return;
  const double inverse_count = *count > 0 ? 1.0 / static_cast<double>(*count) : 0.0;
  loss[0] = (addend == nullptr ? 0.0f : addend[0]) + static_cast<float>(ce * inverse_count);
  loss[1] = (addend == nullptr ? 0.0f : addend[1]) + static_cast<float>(z * inverse_count);
}

// Over all ranks: the maximum of each row, the sum of exponentials relative to it, the logit that
// its label asks for.
void exchange_through_host(const OpContext& op, RowStats device, std::int64_t rows,
                           std::int64_t chunk) {
  std::vector<float> max(static_cast<std::size_t>(rows)), own;
  std::vector<float> sums(static_cast<std::size_t>(2 * chunk), 0.0f);  // and targets
  std::vector<float> scratch(static_cast<std::size_t>(2 * chunk * op.host_group()->size()));
  QT_CUDA(
      cudaMemcpyAsync(max.data(), device.max, max.size() * 4, cudaMemcpyDeviceToHost, op.stream()));
  QT_CUDA(cudaMemcpyAsync(sums.data(), device.sum, sums.size() * 4, cudaMemcpyDeviceToHost,
                          op.stream()));
  QT_CUDA(cudaStreamSynchronize(op.stream()));
  own = max;
  op.host_group()->all_reduce_now(max.data(), rows, Reduction::kMax, scratch.data());
  for (std::size_t r = 0; r < max.size(); ++r) sums[r] *= std::exp(own[r] - max[r]);
  for (std::int64_t r = rows; r < chunk; ++r)  // rows that a short chunk does not have
    sums[static_cast<std::size_t>(r)] = sums[static_cast<std::size_t>(chunk + r)] = 0;
  op.host_group()->all_reduce_now(sums.data(), 2 * chunk, Reduction::kSum, scratch.data());
  QT_CUDA(
      cudaMemcpyAsync(device.max, max.data(), max.size() * 4, cudaMemcpyHostToDevice, op.stream()));
  QT_CUDA(cudaMemcpyAsync(device.sum, sums.data(), sums.size() * 4, cudaMemcpyHostToDevice,
                          op.stream()));
  QT_CUDA(cudaStreamSynchronize(op.stream()));
}

__global__ void rescale_kernel(const float* own_max, RowStats stats, int rows, int chunk) {
  const int r = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (r >= chunk) return;
  const bool live = r < rows;  // a short chunk does not have them all
  stats.sum[r] = live ? stats.sum[r] * expf(own_max[r] - stats.max[r]) : 0.0f;
  if (!live) stats.target[r] = 0;
}
// The same by the device's own library.
void exchange_on_device(const OpContext& op, RowStats stats, float* own_max, std::int64_t rows,
                        std::int64_t chunk) {
  QT_CUDA(cudaMemcpyAsync(own_max, stats.max, static_cast<std::size_t>(rows) * 4,
                          cudaMemcpyDeviceToDevice, op.stream()));
  op.device_group()->all_reduce(stats.max, rows, Reduction::kMax, op.stream());
  rescale_kernel<<<static_cast<unsigned>(ceil_div(chunk, 256)), 256, 0, op.stream()>>>(
      own_max, stats, static_cast<int>(rows), static_cast<int>(chunk));
  QT_LAUNCHED();
  op.device_group()->all_reduce(stats.sum, 2 * chunk, Reduction::kSum, op.stream());
}

}  // namespace

void linear_cross_entropy(const OpContext& op) {
  const auto& attrs = op.attrs<LinearCrossEntropyAttrs>();
  const Shape &x_shape = op.in(lce::kX).shape, &w_shape = op.in(lce::kWeight).shape;
  const std::int64_t tokens = x_shape.rows(), width = x_shape.cols(), stored = w_shape.rows();
  const std::int64_t words = attrs.words > 0 ? attrs.words : stored;
  const std::int64_t chunk = std::min(attrs.chunk, tokens);
  const bool gradients = op.has_out(lce::kDx);
  const DType dtype = op.in(lce::kX).dtype;
  const auto layout = lce::DeviceScratch::of(chunk, stored, dtype);
  auto* logits = op.scratch<std::byte>();
  auto* cross_entropies = op.scratch<float>(layout.losses_offset);
  auto* z_losses = cross_entropies + chunk;
  // Whether the words are spread over several ranks.
  const bool shared = op.host_group() != nullptr || op.device_group() != nullptr;
  auto* own_max = z_losses + 4 * chunk;
  const RowStats stats{z_losses + chunk, z_losses + 2 * chunk, z_losses + 3 * chunk};
  const std::int64_t all_words = attrs.all_words > 0 ? attrs.all_words : words;
  const Target target{1 - attrs.smoothing, attrs.smoothing / static_cast<float>(all_words)};
  auto* workspace = op.scratch<std::byte>(layout.workspace_offset);
  const auto* count = op.in_data<float>(lce::kCount);
  const auto* weight = op.in_data<std::byte>(lce::kWeight);
  Gemm& gemm = *op.device().gemm;

  auto* dw = op.out_data<std::byte>(lce::kDWeight);
  const DType dw_dtype = gradients ? op.out(lce::kDWeight).dtype : dtype;
  if (gradients && !op.has_in(lce::kDWeightAddend) && stored > words) {  // padding
    QT_CUDA(cudaMemsetAsync(dw + words * width * size_of(dw_dtype), 0,
                            static_cast<std::size_t>((stored - words) * width * size_of(dw_dtype)),
                            op.stream()));
  }
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t rows = std::min(chunk, tokens - begin);
    const std::int64_t x_offset = begin * width * size_of(dtype);
    const auto* x = op.in_data<std::byte>(lce::kX) + x_offset;
    gemm.run({false, true, rows, words, width, dtype, dtype, dtype, width, width, layout.ld},
             {x, weight, nullptr, logits, attrs.scale, workspace}, op.stream());
    with_device_type(dtype, [&]<class T>(T) {
      if (shared) {
        stats_kernel<T, kWide<T>><<<static_cast<unsigned>(rows), kThreads, 0, op.stream()>>>(
            reinterpret_cast<T*>(logits), layout.ld, static_cast<int>(words),
            op.in_data<std::int32_t>(lce::kLabels) + begin, attrs.first_word, target, stats);
        QT_LAUNCHED();
        op.device_group() != nullptr ? exchange_on_device(op, stats, own_max, rows, chunk)
                                     : exchange_through_host(op, stats, rows, chunk);
      }
      loss_kernel<T, kWide<T>><<<static_cast<unsigned>(rows), kThreads, 0, op.stream()>>>(
          reinterpret_cast<T*>(logits), layout.ld, static_cast<int>(words),
          op.in_data<std::int32_t>(lce::kLabels) + begin, attrs.first_word, count, attrs.z_loss,
          target, gradients, shared, stats, cross_entropies, z_losses);
      QT_LAUNCHED();
    });
    if (op.has_out(lce::kTokenLoss)) {
      QT_CUDA(cudaMemcpyAsync(op.out_data<float>(lce::kTokenLoss) + begin, cross_entropies,
                              static_cast<std::size_t>(rows) * 4, cudaMemcpyDeviceToDevice,
                              op.stream()));
    }
    auto* loss = op.out_data<float>(lce::kLoss);
    const float* addend = begin > 0 ? loss : op.in_data<float>(lce::kLossAddend);
    add_losses_kernel<<<1, 256, 0, op.stream()>>>(cross_entropies, z_losses, static_cast<int>(rows),
                                                  count, addend, loss);
    QT_LAUNCHED();
    if (!gradients) continue;
    gemm.run({false, false, rows, width, words, dtype, dtype, dtype, layout.ld, width, width},
             {logits, weight, nullptr, op.out_data<std::byte>(lce::kDx) + x_offset, attrs.scale,
              workspace},
             op.stream());
    const bool accumulate = begin > 0 || op.has_in(lce::kDWeightAddend);
    gemm.run({true, false, words, width, rows, dtype, dtype, dw_dtype, layout.ld, width, width},
             {logits, x, accumulate ? dw : nullptr, dw, attrs.scale, workspace}, op.stream());
  }
}

}  // namespace quintet::cuda
