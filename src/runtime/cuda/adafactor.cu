#include <algorithm>

#include "program/ops/adafactor.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/master.cuh"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

// All passes over a weight's elements walk it alike: blockIdx.x is a stripe of 256 columns,
// blockIdx.y a slab of rows; each warp takes whole rows of its stripe, each lane 8 columns, which
// stay the same for all rows. Sums go block by block to the scratch and are added up afterwards, in
// order.

namespace quintet::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kLaneCols = 8;
using adafactor::DeviceGrid;

// The run of a weight that lies in this rank's flat range (program/ops/adafactor.h), seen from a
// kernel. Row r of the part has columns [begin, end) of the run at flat[offset + column].
struct Run {
  std::int64_t begin, first, size;      // flat[begin] is element `first` of the part
  std::int64_t part_cols, base, count;  // rows [base, base + count) of the part have elements of it
  std::int64_t row0, col0, rows, cols, state;
  bool factored, counted;

  __device__ std::int64_t offset(std::int64_t r) const { return begin + r * part_cols - first; }
  __device__ bool holds(std::int64_t element) const {
    return element >= first && element < first + size;
  }
};

Run run_of(const AdafactorSegment& s) {
  return {s.begin,
          s.first,
          s.end - s.begin,
          s.part_cols,
          adafactor::first_row(s),
          adafactor::row_count(s),
          s.row0,
          s.col0,
          s.rows,
          s.cols,
          s.state,
          s.factored,
          s.counted};
}

// Whether packs of N elements are aligned wherever the walk finds them.
bool packs_fit(const AdafactorSegment& s, int n) {
  return s.part_cols % n == 0 && (s.begin - s.first) % n == 0;
}

// Calls body.visit<M>(k, j, row, col, flat index) for M neighbouring elements, which belong to
// column j of pack k of this lane, and body.end_row(row) after each row.
template <int N, class Body>
__device__ void walk(const Run& s, Body& body) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t stripe = std::int64_t{blockIdx.x} * DeviceGrid::kStripe;
  const std::int64_t begin = s.count * blockIdx.y / gridDim.y,
                     end = s.count * (blockIdx.y + 1) / gridDim.y;
  for (std::int64_t r = s.base + begin + warp; r < s.base + end; r += kWarps) {
    const std::int64_t at = r * s.part_cols, offset = s.offset(r);
#pragma unroll
    for (int k = 0; k < kLaneCols / N; ++k) {
      const std::int64_t col = stripe + (k * 32 + lane) * N;
      if (col + N <= s.part_cols && s.holds(at + col) && s.holds(at + col + N - 1)) {
        body.template visit<N>(k, 0, r, col, offset + col);
      } else if (N > 1) {
        for (int j = 0; j < N; ++j) {
          if (col + j < s.part_cols && s.holds(at + col + j))
            body.template visit<1>(k, j, r, col + j, offset + col + j);
        }
      }
    }
    body.end_row(r);
  }
}

// --- sums
// --------------------------------------------------------------------------------------------

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

// --- moments
// -----------------------------------------------------------------------------------------

// Several weights in one launch: there are many small ones.
struct Runs {
  static constexpr int kMost = 16;
  Run run[kMost];
};

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

// --- rms, apply
// --------------------------------------------------------------------------------------

// The factor of each element of the walk: r_i c_j, of which a lane keeps its c_j, or its own.
template <int N>
struct ElementFactors {
  const float* factors;  // of this weight
  Run s;
  float cols[kLaneCols / N][N] = {};

  __device__ ElementFactors(const Run& s, const float* all) : factors(all + s.state), s(s) {
    if (!s.factored) return;
    const std::int64_t stripe = std::int64_t{blockIdx.x} * DeviceGrid::kStripe;
#pragma unroll
    for (int k = 0; k < kLaneCols / N; ++k) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const std::int64_t col = stripe + (k * 32 + threadIdx.x % 32) * N + j;
        if (col < s.part_cols) cols[k][j] = factors[s.rows + s.col0 + col];
      }
    }
  }
  template <int M>
  __device__ void get(int k, int j, std::int64_t r, std::int64_t col, float (&out)[M]) const {
    const float row = s.factored ? factors[s.row0 + r] : 0.0f;
#pragma unroll
    for (int i = 0; i < M; ++i) {
      if (!s.factored) {
        out[i] = factors[(s.row0 + r) * s.cols + s.col0 + col + i];
      } else if constexpr (M == N) {
        out[i] = row * cols[k][i];
      } else {
        out[i] = row * factors[s.rows + s.col0 + col + i];
      }
    }
  }
};

template <class G, int N>
struct SquaresOfUpdate {
  ElementFactors<N> factors;
  const G* grad;
  Master master;
  float scale;
  float row_update = 0, row_weight = 0;
  double update = 0, weight = 0;

  template <int M>
  __device__ void visit(int k, int j, std::int64_t r, std::int64_t col, std::int64_t flat) {
    float g[M], w[M], f[M];
    load_floats<M>(grad + flat, g);
    master.load<M>(flat, w);
    factors.template get<M>(k, j, r, col, f);
#pragma unroll
    for (int i = 0; i < M; ++i) {
      const float u = g[i] * scale * f[i];
      row_update += u * u;
      row_weight += w[i] * w[i];
    }
  }
  __device__ void end_row(std::int64_t) {
    update += static_cast<double>(row_update);
    weight += static_cast<double>(row_weight);
    row_update = row_weight = 0;
  }
};

template <class G, int N>
__global__ void __launch_bounds__(kThreads)
    rms_kernel(Run s, const G* grad, const float* scale, const float* factors, Master master,
               double* partial) {
  __shared__ double shared[kWarps];
  SquaresOfUpdate<G, N> body{ElementFactors<N>(s, factors), grad, master, *scale};
  if (s.counted) walk<N>(s, body);
  const double update = block_sum<kThreads>(body.update, shared);
  const double weight = block_sum<kThreads>(body.weight, shared);
  if (threadIdx.x != 0) return;
  const std::int64_t block = std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  partial[2 * block] = update;
  partial[2 * block + 1] = weight;
}

// Where each weight's partial sums lie, and how many there are.
struct Partials {
  std::int64_t first[Runs::kMost];
  int blocks[Runs::kMost];
};
__global__ void finish_rms_kernel(const double* all, Partials partials, float* squares) {
  __shared__ double shared[kWarps];
  const double* partial = all + 2 * partials.first[blockIdx.x];
  const int blocks = partials.blocks[blockIdx.x];
  squares += 2 * blockIdx.x;
  double update = 0, weight = 0;
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    update += partial[2 * i];
    weight += partial[2 * i + 1];
  }
  update = block_sum<kThreads>(update, shared);
  weight = block_sum<kThreads>(weight, shared);
  if (threadIdx.x != 0) return;
  squares[0] = static_cast<float>(update);
  squares[1] = static_cast<float>(weight);
}

template <class G, int N>
struct ApplyUpdate {
  ElementFactors<N> factors;
  const G* grad;
  Master master;
  float keep, factor_all;

  template <int M>
  __device__ void visit(int k, int j, std::int64_t r, std::int64_t col, std::int64_t flat) {
    float g[M], w[M], f[M];
    load_floats<M>(grad + flat, g);
    master.load<M>(flat, w);
    factors.template get<M>(k, j, r, col, f);
#pragma unroll
    for (int i = 0; i < M; ++i) w[i] = w[i] * keep - g[i] * f[i] * factor_all;
    master.store<M>(flat, w);
  }
  __device__ void end_row(std::int64_t) {}
};

struct ApplyInputs {
  const float *scale, *rate, *squares;
  float epsilon2, clip_threshold, weight_decay;
  bool scale_parameter;
};

template <class G, int N>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(Run s, ApplyInputs in, const G* grad, const float* factors, Master master) {
  const float scale = *in.scale;
  if (isnan(scale)) return;  // the gradients are not finite: leave everything as it was
  const auto size = static_cast<float>(s.rows * s.cols);
  const float update_rms = sqrtf(in.squares[0] / size), weight_rms = sqrtf(in.squares[1] / size);
  const float lr = *in.rate * (in.scale_parameter ? fmaxf(in.epsilon2, weight_rms) : 1.0f);
  ApplyUpdate<G, N> body{ElementFactors<N>(s, factors), grad, master, 1 - lr * in.weight_decay,
                         scale * lr / fmaxf(1.0f, update_rms / in.clip_threshold)};
  walk<N>(s, body);
}

Master master_of(const OpContext& op, int in_slot, int in_working, bool writes) {
  const bool split = op.in(in_slot).dtype == DType::kI16;
  Master master;
  if (split) {
    master.remainder = const_cast<std::int16_t*>(op.in_data<std::int16_t>(in_slot));
    master.working = const_cast<dbf16*>(op.in_data<dbf16>(in_working));
  } else {
    master.full = const_cast<float*>(op.in_data<float>(in_slot));
    if (writes) master.working = op.out_data<dbf16>(adafactor_apply::kWorking);
  }
  return master;
}

// Calls launch.template operator()<N>(): packs of 16 bytes of the gradient, or single elements.
template <class G, class Launch>
void with_width(const AdafactorSegment& s, const G* grad, const Launch& launch) {
  if (packs_fit(s, kWide<G>) && is_wide(grad)) {
    launch.template operator()<kWide<G>>();
  } else {
    launch.template operator()<1>();
  }
}

dim3 grid_of(const AdafactorSegment& s) {
  const DeviceGrid grid = DeviceGrid::of(s);
  return dim3(static_cast<unsigned>(grid.stripes), static_cast<unsigned>(grid.slabs));
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

void adafactor_rms(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const Master master = master_of(op, adafactor_rms::kMaster, adafactor_rms::kWorkingIn, false);
  auto* squares = op.out_data<float>(adafactor_rms::kSquares);
  auto* partial = op.scratch<double>();
  with_device_type(op.in(adafactor_rms::kGrad).dtype, [&]<class G>(G) {
    const auto* grad = op.in_data<G>(adafactor_rms::kGrad);
    for (std::size_t first = 0; first < attrs.segments.size(); first += Runs::kMost) {
      const std::size_t count = std::min<std::size_t>(Runs::kMost, attrs.segments.size() - first);
      Partials partials{};
      std::int64_t blocks = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const AdafactorSegment& s = attrs.segments[first + i];
        const dim3 grid = grid_of(s);
        partials.first[i] = blocks;
        partials.blocks[i] = static_cast<int>(grid.x * grid.y);
        with_width(s, grad, [&]<int N>() {
          rms_kernel<G, N><<<grid, kThreads, 0, op.stream()>>>(
              run_of(s), grad, op.in_data<float>(adafactor_rms::kScale),
              op.in_data<float>(adafactor_rms::kFactors), master, partial + 2 * blocks);
          QT_LAUNCHED();
        });
        blocks += partials.blocks[i];
      }
      finish_rms_kernel<<<static_cast<unsigned>(count), kThreads, 0, op.stream()>>>(
          partial, partials, squares + 2 * first);
      QT_LAUNCHED();
    }
  });
}

void adafactor_apply(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const Master master = master_of(op, adafactor_apply::kMaster, adafactor_apply::kWorkingIn, true);
  with_device_type(op.in(adafactor_apply::kGrad).dtype, [&]<class G>(G) {
    const auto* grad = op.in_data<G>(adafactor_apply::kGrad);
    for (std::size_t w = 0; w < attrs.segments.size(); ++w) {
      const AdafactorSegment& s = attrs.segments[w];
      if (adafactor::row_count(s) == 0) continue;
      const ApplyInputs in{op.in_data<float>(adafactor_apply::kScale),
                           op.in_data<float>(adafactor_apply::kLearningRate),
                           op.in_data<float>(adafactor_apply::kSquares) + 2 * w,
                           attrs.epsilon2,
                           attrs.clip_threshold,
                           attrs.weight_decay,
                           attrs.scale_parameter};
      with_width(s, grad, [&]<int N>() {
        apply_kernel<G, N><<<grid_of(s), kThreads, 0, op.stream()>>>(
            run_of(s), in, grad, op.in_data<float>(adafactor_apply::kFactors), master);
        QT_LAUNCHED();
      });
    }
  });
}

}  // namespace quintet::cuda
