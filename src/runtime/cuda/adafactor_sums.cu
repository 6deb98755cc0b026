// Adafactor: from the gradient to sums over rows and columns, and from those to running means and
// factors.
#include <algorithm>

#include "runtime/cuda/adafactor.cuh"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.cuh"

namespace quintet::cuda {
namespace {

using namespace adafactor_walk;

template <class G, int N>
struct SumSquares {
  const G* grad;
  float scale, epsilon;
  float* row_sums;  // [count] of this stripe
  std::int64_t base;
  float cols[kLaneCols / N][N] = {};
  float row = 0;

  template <int M>
  __device__ void visit(int k, int j, std::int64_t, std::int64_t, std::int64_t flat) {
    float g[M];
    load_floats<M>(grad + flat, g);
#pragma unroll
    for (int i = 0; i < M; ++i) {
      const float scaled = g[i] * scale, square = scaled * scaled + epsilon;
      row += square;
      if constexpr (M == N) {
        cols[k][i] += square;
      } else {
#pragma unroll
        for (int c = 0; c < N; ++c) cols[k][c] += c == j ? square : 0.0f;
      }
    }
  }
  __device__ void end_row(std::int64_t r) {
    const float sum = warp_sum(row);
    if (threadIdx.x % 32 == 0) row_sums[r - base] = sum;
    row = 0;
  }
};

// The same where the run is whole rows of whole packs, as it is without sharding: several rows
// under way at a time.
template <class G, int N>
__device__ void sum_whole_rows(const Run& s, SumSquares<G, N>& body) {
  constexpr int kPacks = kLaneCols / N, kRows = 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t stripe = std::int64_t{blockIdx.x} * DeviceGrid::kStripe;
  const std::int64_t begin = s.count * blockIdx.y / gridDim.y,
                     end = s.count * (blockIdx.y + 1) / gridDim.y;
  const G* grad = body.grad + s.begin;
  for (std::int64_t r0 = begin + warp; r0 < end; r0 += kWarps * kRows) {
    Pack<G, N> packs[kRows][kPacks];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t r = r0 + i * kWarps;
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const std::int64_t col = stripe + (k * 32 + lane) * N;
        if (r < end && col < s.part_cols) packs[i][k] = load_pack<N>(grad + r * s.part_cols + col);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t r = r0 + i * kWarps;
      if (r >= end) break;
      float row = 0;
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (stripe + (k * 32 + lane) * N >= s.part_cols) continue;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float scaled = to_float(packs[i][k].v[j]) * body.scale;
          const float square = scaled * scaled + body.epsilon;
          row += square;
          body.cols[k][j] += square;
        }
      }
      row = warp_sum(row);
      if (lane == 0) body.row_sums[r] = row;
    }
  }
}

template <class G, int N, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(Run s, const G* grad, const float* scale, float epsilon, float* row_partial,
                float* col_partial) {
  SumSquares<G, N> body{grad, *scale, epsilon, row_partial + std::int64_t{blockIdx.x} * s.count,
                        s.base};
  if constexpr (kWhole) {
    sum_whole_rows<G, N>(s, body);
  } else {
    walk<N>(s, body);
  }
  __shared__ float shared[kWarps][DeviceGrid::kStripe];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kLaneCols / N; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) shared[warp][(k * 32 + lane) * N + j] = body.cols[k][j];
  }
  __syncthreads();
  const std::int64_t col = std::int64_t{blockIdx.x} * DeviceGrid::kStripe + threadIdx.x;
  if (col >= s.part_cols) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += shared[w][threadIdx.x];
  col_partial[std::int64_t{blockIdx.y} * s.part_cols + col] = sum;
}

// Adds up the partial sums of a matrix, and writes zeros where this rank has nothing.
__global__ void finish_sums_kernel(Run s, const float* row_partial, const float* col_partial,
                                   int stripes, int slabs, float* sums) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < s.rows + s.cols;
       i += stride) {
    float sum = 0;
    if (i < s.rows) {
      const std::int64_t r = i - s.row0 - s.base;
      if (s.counted && r >= 0 && r < s.count) {
        for (int stripe = 0; stripe < stripes; ++stripe) sum += row_partial[stripe * s.count + r];
      }
    } else {
      const std::int64_t c = i - s.rows - s.col0;
      if (s.counted && c >= 0 && c < s.part_cols && s.count > 0) {
        for (int slab = 0; slab < slabs; ++slab) sum += col_partial[slab * s.part_cols + c];
      }
    }
    sums[s.state + i] = sum;
  }
}

// Not factored: one value an element.
template <class G>
__global__ void element_sums_kernel(Run s, const G* grad, const float* scale, float epsilon,
                                    float* sums) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < s.rows * s.cols;
       i += stride) {
    const std::int64_t r = i / s.cols - s.row0, c = i % s.cols - s.col0;
    float square = 0;
    if (s.counted && r >= s.base && r < s.base + s.count && c >= 0 && c < s.part_cols &&
        s.holds(r * s.part_cols + c)) {
      const float scaled = to_float(grad[s.offset(r) + c]) * *scale;
      square = scaled * scaled + epsilon;
    }
    sums[s.state + i] = square;
  }
}

// One block a weight.
__global__ void __launch_bounds__(1024)
    moments_kernel(Runs runs, const float* sums, const float* scale, const std::int64_t* step,
                   float decay_rate, float* state, float* factors) {
  const Run s = runs.run[blockIdx.x];
  __shared__ double shared[32];
  __shared__ float shared_beta;
  const std::int64_t size = s.factored ? s.rows + s.cols : s.rows * s.cols;
  const float* sum = sums + s.state;
  float *mean = state + s.state, *factor = factors + s.state;
  if (isnan(*scale)) {
    for (std::int64_t i = threadIdx.x; i < size; i += 1024) factor[i] = 0;
    return;
  }
  if (threadIdx.x == 0) {
    shared_beta =
        static_cast<float>(1 - pow(static_cast<double>(*step), static_cast<double>(decay_rate)));
  }
  __syncthreads();
  const float beta2 = shared_beta;
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += 1024) {
    const std::int64_t divisor = !s.factored ? 1 : i < s.rows ? s.cols : s.rows;
    const float value = beta2 * mean[i] + (1 - beta2) * sum[i] / static_cast<float>(divisor);
    mean[i] = value;
    if (i < s.rows) total += static_cast<double>(value);
    if (!s.factored || i >= s.rows) factor[i] = 1 / sqrtf(value);
  }
  if (!s.factored) return;
  total = block_sum<1024>(total, shared);
  const auto row_mean = static_cast<float>(total / static_cast<double>(s.rows));
  for (std::int64_t i = threadIdx.x; i < s.rows; i += 1024)
    factor[i] = 1 / sqrtf(mean[i] / row_mean);
}

}  // namespace

void adafactor_sums(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const auto* scale = op.in_data<float>(adafactor_sums::kScale);
  auto* sums = op.out_data<float>(adafactor_sums::kSums);
  with_device_type(op.in(adafactor_sums::kGrad).dtype, [&]<class G>(G) {
    const auto* grad = op.in_data<G>(adafactor_sums::kGrad);
    for (const AdafactorSegment& s : attrs.segments) {
      const Run run = run_of(s);
      if (!s.factored) {
        element_sums_kernel<<<grid_for(s.state_size(), 256, op.device().multiprocessors), 256, 0,
                              op.stream()>>>(run, grad, scale, attrs.epsilon1, sums);
        QT_LAUNCHED();
        continue;
      }
      const DeviceGrid grid = DeviceGrid::of(s);
      auto* row_partial = op.scratch<float>();
      auto* col_partial = row_partial + grid.stripes * run.count;
      if (s.counted && run.count > 0) {
        with_width(s, grad, [&]<int N>() {
          const bool whole = N > 1 && run.first == 0 && run.size == run.count * run.part_cols;
          const auto kernel = whole ? sums_kernel<G, N, true> : sums_kernel<G, N, false>;
          kernel<<<grid_of(s), kThreads, 0, op.stream()>>>(run, grad, scale, attrs.epsilon1,
                                                           row_partial, col_partial);
          QT_LAUNCHED();
        });
      }
      finish_sums_kernel<<<grid_for(s.state_size(), 256, op.device().multiprocessors), 256, 0,
                           op.stream()>>>(run, row_partial, col_partial,
                                          static_cast<int>(grid.stripes),
                                          static_cast<int>(grid.slabs), sums);
      QT_LAUNCHED();
    }
  });
}

void adafactor_moments(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  for (std::size_t first = 0; first < attrs.segments.size(); first += Runs::kMost) {
    const std::size_t count = std::min<std::size_t>(Runs::kMost, attrs.segments.size() - first);
    Runs runs{};
    for (std::size_t i = 0; i < count; ++i) runs.run[i] = run_of(attrs.segments[first + i]);
    moments_kernel<<<static_cast<unsigned>(count), 1024, 0, op.stream()>>>(
        runs, op.in_data<float>(adafactor_moments::kSums),
        op.in_data<float>(adafactor_moments::kScale),
        op.in_data<std::int64_t>(adafactor_moments::kStep), attrs.decay_rate,
        op.out_data<float>(adafactor_moments::kStateOut),
        op.out_data<float>(adafactor_moments::kFactors));
    QT_LAUNCHED();
  }
}

}  // namespace quintet::cuda
