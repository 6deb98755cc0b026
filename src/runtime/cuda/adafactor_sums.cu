// Adafactor: from the gradient to sums over rows and columns, and from those to running means and
// factors.
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
      row += g[i] * g[i];
      if constexpr (M == N) {
        cols[k][i] += g[i] * g[i];
      } else {
#pragma unroll
        for (int c = 0; c < N; ++c) cols[k][c] += c == j ? g[i] * g[i] : 0.0f;
      }
    }
  }
  __device__ void end_row(std::int64_t r) {
    const float sum = warp_sum(row);
    if (threadIdx.x % 32 == 0) row_sums[r - base] = sum;
    row = 0;
  }
};

// The same over whole rows of whole packs: several rows under way at a time, whose sums are made
// together: at each of the first steps a lane gives away half of its rows and keeps the other half.
template <class G, int N>
__device__ void sum_whole_rows(const Run& s, const Place& place, SumSquares<G, N>& body) {
  constexpr int kPacks = kLaneCols / N, kRows = 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto cols = static_cast<int>(s.part_cols), col0 = static_cast<int>(place.col0) + lane * N;
  const auto rows = static_cast<int>(place.end - place.begin);
  const G* grad = body.grad + s.begin + place.begin * s.part_cols;
  float* row_sums = body.row_sums + place.begin;
  for (int r0 = warp * kRows; r0 < rows; r0 += kWarps * kRows) {
    const G* from = grad + std::int64_t{r0} * cols + col0;
    Pack<G, N> packs[kRows][kPacks] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (r0 + i < rows && col0 + k * 32 * N < cols)
          packs[i][k] = load_pack<N>(from + i * cols + k * 32 * N);
      }
    }
    float sum[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float g = to_float(packs[i][k].v[j]);
          sum[i] += g * g;
          body.cols[k][j] += g * g;
        }
      }
    }
    const bool upper = (lane & 16) != 0, odd = (lane & 8) != 0;
    const float first =
        (upper ? sum[2] : sum[0]) + __shfl_xor_sync(~0u, upper ? sum[0] : sum[2], 16);
    const float second =
        (upper ? sum[3] : sum[1]) + __shfl_xor_sync(~0u, upper ? sum[1] : sum[3], 16);
    float total = (odd ? second : first) + __shfl_xor_sync(~0u, odd ? first : second, 8);
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) total += __shfl_xor_sync(~0u, total, offset);
    const int row = r0 + lane / 8;
    if (lane % 8 == 0 && row < rows) row_sums[row] = total;
  }
}

template <class G, int N>
__device__ void sum_block(const Run& s, const G* grad, float* scratch) {
  const Place place(s);
  SumSquares<G, N> body{grad, scratch + s.row_sums + place.stripe * s.count, s.base};
  if (s.whole) {
    sum_whole_rows<G, N>(s, place, body);
  } else {
    walk<N>(s, place, body);
  }
  __shared__ float shared[kWarps][DeviceGrid::kStripe];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kLaneCols / N; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) shared[warp][(k * 32 + lane) * N + j] = body.cols[k][j];
  }
  __syncthreads();
  const std::int64_t col = place.col0 + threadIdx.x;
  if (col >= s.part_cols) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += shared[w][threadIdx.x];
  scratch[s.col_sums + place.slab * s.part_cols + col] = sum;
}

template <class G>
__global__ void __launch_bounds__(kThreads, 4)
    sums_kernel(const __grid_constant__ Runs runs, const G* grad, float* scratch) {
  const Run& s = runs.run[runs.of_block()];
  if (!s.factored || !s.counted || s.count == 0) return;
  if (s.wide) {
    sum_block<G, kWide<G>>(s, grad, scratch);
  } else {
    sum_block<G, 1>(s, grad, scratch);
  }
}

// Adds up the partial sums of matrices, takes the squares of everything else as they are, and
// writes zeros where this rank has nothing; blockIdx.y is the weight.
template <class G>
__global__ void __launch_bounds__(kThreads)
    finish_sums_kernel(const __grid_constant__ Runs runs, const G* grad, const float* scratch,
                       float* sums) {
  const Run& s = runs.run[blockIdx.y];
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads, size = s.state_size();
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += stride) {
    float sum = 0;
    if (!s.counted || s.count == 0) {
      // nothing
    } else if (!s.factored) {
      const std::int64_t r = i / s.cols - s.row0, c = i % s.cols - s.col0;
      if (r >= s.base && r < s.base + s.count && c >= 0 && c < s.part_cols &&
          s.holds(r * s.part_cols + c)) {
        const float g = to_float(grad[s.offset(r) + c]);
        sum = g * g;
      }
    } else if (i < s.rows) {
      const std::int64_t r = i - s.row0 - s.base;
      if (r >= 0 && r < s.count) {
        for (int stripe = 0; stripe < s.stripes; ++stripe)
          sum += scratch[s.row_sums + stripe * s.count + r];
      }
    } else {
      const std::int64_t c = i - s.rows - s.col0;
      if (c >= 0 && c < s.part_cols) {
        for (int slab = 0; slab < s.slabs; ++slab)
          sum += scratch[s.col_sums + slab * s.part_cols + c];
      }
    }
    sums[s.state + i] = sum;
  }
}

// The total of all weights that are in the norm, by one block.
constexpr int kTotalThreads = 1024;
__global__ void __launch_bounds__(kTotalThreads)
    total_kernel(const __grid_constant__ Runs runs, const float* sums, bool add, float* square) {
  __shared__ double shared[kTotalThreads / 32];
  double total = 0;
  for (int w = 0; w < runs.count; ++w) {
    const Run& s = runs.run[w];
    if (!s.in_norm) continue;
    const std::int64_t size = s.factored ? s.rows : s.rows * s.cols;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < size; i += kTotalThreads)
      total += static_cast<double>(sums[s.state + i]);
  }
  total = block_sum<kTotalThreads>(total, shared);
  if (threadIdx.x == 0)
    *square = static_cast<float>(total + (add ? static_cast<double>(*square) : 0.0));
}

// The running means, and the factors of columns and of single elements; blockIdx.y is the weight.
// Each block leaves its part of the total over rows.
__global__ void __launch_bounds__(kThreads)
    means_kernel(const __grid_constant__ Runs runs, const float* sums, const float* scale,
                 const std::int64_t* step, float decay_rate, float epsilon, float* state,
                 float* factors, double* row_totals) {
  const Run& s = runs.run[blockIdx.y];
  __shared__ double shared[kWarps];
  __shared__ float shared_beta;
  const std::int64_t size = s.state_size(), stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float* sum = sums + s.state;
  float *mean = state + s.state, *factor = factors + s.state;
  const float clip = *scale;
  if (isnan(clip)) {
    for (std::int64_t i = first; i < size; i += stride) factor[i] = 0;
    return;
  }
  if (threadIdx.x == 0) {
    shared_beta =
        static_cast<float>(1 - pow(static_cast<double>(*step), static_cast<double>(decay_rate)));
  }
  __syncthreads();
  const float beta2 = shared_beta;
  double total = 0;
  for (std::int64_t i = first; i < size; i += stride) {
    const std::int64_t divisor = !s.factored ? 1 : i < s.rows ? s.cols : s.rows;
    const float square = sum[i] * clip * clip / static_cast<float>(divisor) + epsilon;
    const float value = beta2 * mean[i] + (1 - beta2) * square;
    mean[i] = value;
    if (i < s.rows) total += static_cast<double>(value);
    if (!s.factored || i >= s.rows) factor[i] = 1 / sqrtf(value);
  }
  total = block_sum<kThreads>(total, shared);
  if (threadIdx.x == 0) row_totals[blockIdx.y * gridDim.x + blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    row_factors_kernel(const __grid_constant__ Runs runs, const float* scale, const float* state,
                       const double* row_totals, float* factors) {
  const Run& s = runs.run[blockIdx.y];
  if (!s.factored || isnan(*scale)) return;
  double total = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) total += row_totals[blockIdx.y * gridDim.x + i];
  const auto row_mean = static_cast<float>(total / static_cast<double>(s.rows));
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < s.rows; i += stride)
    factors[s.state + i] = 1 / sqrtf(state[s.state + i] / row_mean);
}

}  // namespace

void adafactor_sums(const OpContext& op) {
  auto* sums = op.out_data<float>(adafactor_sums::kSums);
  auto* scratch = op.scratch<float>();
  with_device_type(op.in(adafactor_sums::kGrad).dtype, [&]<class G>(G) {
    const auto* grad = op.in_data<G>(adafactor_sums::kGrad);
    const auto launch = [&](const Runs& runs, std::size_t first) {
      sums_kernel<<<static_cast<unsigned>(runs.blocks), kThreads, 0, op.stream()>>>(runs, grad,
                                                                                    scratch);
      QT_LAUNCHED();
      const dim3 grid(static_cast<unsigned>(op.device().multiprocessors),
                      static_cast<unsigned>(runs.count));
      finish_sums_kernel<<<grid, kThreads, 0, op.stream()>>>(runs, grad, scratch, sums);
      QT_LAUNCHED();
      total_kernel<<<1, kTotalThreads, 0, op.stream()>>>(
          runs, sums, first > 0, op.out_data<float>(adafactor_sums::kSquare));
      QT_LAUNCHED();
    };
    for_runs(op.attrs<AdafactorAttrs>(), kWide<G>, is_wide(grad), launch);
  });
}

void adafactor_moments(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const auto* scale = op.in_data<float>(adafactor_moments::kScale);
  auto* state = op.out_data<float>(adafactor_moments::kStateOut);
  auto* factors = op.out_data<float>(adafactor_moments::kFactors);
  auto* row_totals = op.scratch<double>();
  for_runs(attrs, 1, true, [&](const Runs& runs, std::size_t) {
    const dim3 grid(static_cast<unsigned>(adafactor::kMomentBlocks),
                    static_cast<unsigned>(runs.count));
    means_kernel<<<grid, kThreads, 0, op.stream()>>>(
        runs, op.in_data<float>(adafactor_moments::kSums), scale,
        op.in_data<std::int64_t>(adafactor_moments::kStep), attrs.decay_rate, attrs.epsilon1, state,
        factors, row_totals);
    QT_LAUNCHED();
    row_factors_kernel<<<grid, kThreads, 0, op.stream()>>>(runs, scale, state, row_totals, factors);
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
