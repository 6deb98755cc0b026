// Adafactor: the size of the update, and the update.
#include "runtime/cuda/adafactor.cuh"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/master.cuh"
#include "runtime/cuda/reduce.cuh"

namespace quintet::cuda {
namespace {

using namespace adafactor_walk;

// The factor of each element of the walk: r_i c_j, of which a lane keeps its c_j, or its own.
template <int N>
struct ElementFactors {
  const float* factors;  // of this weight
  const Run& s;
  float cols[kLaneCols / N][N] = {};

  __device__ ElementFactors(const Run& s, const Place& place, const float* all)
      : factors(all + s.state), s(s) {
    if (!s.factored) return;
#pragma unroll
    for (int k = 0; k < kLaneCols / N; ++k) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const std::int64_t col = place.col0 + (k * 32 + threadIdx.x % 32) * N + j;
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

template <class G, class W, int N>
struct SquaresOfUpdate {
  ElementFactors<N> factors;
  const G* grad;
  const W* weights;
  float scale;
  float row_update = 0, row_weight = 0;
  double update = 0, weight = 0;

  template <int M>
  __device__ void visit(int k, int j, std::int64_t r, std::int64_t col, std::int64_t flat) {
    float g[M], w[M], f[M];
    load_floats<M>(grad + flat, g);
    load_floats<M>(weights + flat, w);
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

// The same over whole rows of whole packs of a matrix: several rows under way at a time.
template <class G, class W, int N>
__device__ double2 squares_of_whole_rows(const Run& s, const G* grad, const W* weights, float scale,
                                         const float* factors) {
  constexpr int kPacks = kLaneCols / N, kRows = 2;
  const Place place(s);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto cols = static_cast<int>(s.part_cols), col0 = static_cast<int>(place.col0) + lane * N;
  const auto rows = static_cast<int>(place.end - place.begin);
  const std::int64_t begin = s.begin + place.begin * s.part_cols;
  const float* row_factors = factors + s.state + s.row0 + s.base + place.begin;
  const float* col_factors = factors + s.state + s.rows + s.col0;
  float of_col[kPacks][N] = {};
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int col = col0 + k * 32 * N + j;
      if (col < cols) of_col[k][j] = scale * col_factors[col];
    }
  }
  double update = 0, weight = 0;
  for (int r0 = warp * kRows; r0 < rows; r0 += kWarps * kRows) {
    const std::int64_t from = begin + std::int64_t{r0} * cols + col0;
    Pack<G, N> g[kRows][kPacks] = {};
    Pack<W, N> w[kRows][kPacks] = {};
    float of_row[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (r0 + i >= rows) continue;
      of_row[i] = row_factors[r0 + i];
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (col0 + k * 32 * N >= cols) continue;
        g[i][k] = load_pack<N>(grad + from + i * cols + k * 32 * N);
        w[i][k] = load_pack<N>(weights + from + i * cols + k * 32 * N);
      }
    }
    float updates = 0, own = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float of_columns = 0;
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float u = to_float(g[i][k].v[j]) * of_col[k][j], x = to_float(w[i][k].v[j]);
          of_columns += u * u;
          own += x * x;
        }
      }
      updates += of_columns * of_row[i] * of_row[i];
    }
    update += static_cast<double>(updates);
    weight += static_cast<double>(own);
  }
  return {update, weight};
}

template <class G, class W, int N>
__device__ double2 squares_of_block(const Run& s, const G* grad, const W* weights, float scale,
                                    const float* factors) {
  const Place place(s);
  SquaresOfUpdate<G, W, N> body{ElementFactors<N>(s, place, factors), grad, weights, scale};
  walk<N>(s, place, body);
  return {body.update, body.weight};
}

template <class G, class W>
__global__ void __launch_bounds__(kThreads, 4)
    rms_kernel(const __grid_constant__ Runs runs, const G* grad, const W* weights,
               const float* scale, const float* factors, double2* partial) {
  __shared__ double shared[kWarps];
  const Run& s = runs.run[runs.of_block()];
  double2 squares{0, 0};
  if (!s.counted) {
    // nothing
  } else if (s.whole && s.factored) {
    squares = squares_of_whole_rows<G, W, kWide<G>>(s, grad, weights, *scale, factors);
  } else if (s.wide) {
    squares = squares_of_block<G, W, kWide<G>>(s, grad, weights, *scale, factors);
  } else {
    squares = squares_of_block<G, W, 1>(s, grad, weights, *scale, factors);
  }
  squares.x = block_sum<kThreads>(squares.x, shared);
  squares.y = block_sum<kThreads>(squares.y, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = squares;
}

// A block for each weight.
__global__ void __launch_bounds__(kThreads)
    finish_rms_kernel(const __grid_constant__ Runs runs, const double2* partial, float* squares) {
  __shared__ double shared[kWarps];
  const Run& s = runs.run[blockIdx.x];
  double update = 0, weight = 0;
  for (int i = threadIdx.x; i < s.stripes * s.slabs; i += kThreads) {
    const double2 of_block = partial[s.first_block + i];
    update += of_block.x;
    weight += of_block.y;
  }
  update = block_sum<kThreads>(update, shared);
  weight = block_sum<kThreads>(weight, shared);
  if (threadIdx.x != 0) return;
  squares[2 * blockIdx.x] = static_cast<float>(update);
  squares[2 * blockIdx.x + 1] = static_cast<float>(weight);
}

template <class G, int N>
struct ApplyUpdate {
  ElementFactors<N> factors;
  const G* grad;
  Master master;
  Ema ema;
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
    ema.add<M>(flat, w);
  }
  __device__ void end_row(std::int64_t) {}
};

struct ApplyInputs {
  const float *scale, *rate, *factors, *squares;
  float epsilon2, clip_threshold;
  bool scale_parameter;
};

template <class G, int N>
__device__ void apply_block(const Run& s, const ApplyInputs& in, const float* squares,
                            const G* grad, const Master& master, const Ema& ema) {
  const Place place(s);
  const auto size = static_cast<float>(s.rows * s.cols);
  const float update_rms = sqrtf(squares[0] / size), weight_rms = sqrtf(squares[1] / size);
  const float lr = *in.rate * (in.scale_parameter ? fmaxf(in.epsilon2, weight_rms) : 1.0f);
  ApplyUpdate<G, N> body{
      ElementFactors<N>(s, place, in.factors),
      grad,
      master,
      ema,
      1 - lr * s.weight_decay,
      *in.scale * lr * s.rate_scale / fmaxf(1.0f, update_rms / in.clip_threshold)};
  walk<N>(s, place, body);
}

template <class G>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(const __grid_constant__ Runs runs, ApplyInputs in, const G* grad, Master master,
                 Ema ema) {
  if (isnan(*in.scale)) return;  // the gradients are not finite: leave everything as it was
  const int weight = runs.of_block();
  const Run& s = runs.run[weight];
  if (s.wide) {
    apply_block<G, kWide<G>>(s, in, in.squares + 2 * weight, grad, master, ema);
  } else {
    apply_block<G, 1>(s, in, in.squares + 2 * weight, grad, master, ema);
  }
}

}  // namespace

void adafactor_rms(const OpContext& op) {
  auto* partial = op.scratch<double2>();
  with_device_type(op.in(adafactor_rms::kGrad).dtype, [&]<class G>(G) {
    with_device_type(op.in(adafactor_rms::kWeights).dtype, [&]<class W>(W) {
      const auto* grad = op.in_data<G>(adafactor_rms::kGrad);
      const auto* weights = op.in_data<W>(adafactor_rms::kWeights);
      const auto launch = [&](const Runs& runs, std::size_t first) {
        rms_kernel<<<static_cast<unsigned>(runs.blocks), kThreads, 0, op.stream()>>>(
            runs, grad, weights, op.in_data<float>(adafactor_rms::kScale),
            op.in_data<float>(adafactor_rms::kFactors), partial);
        QT_LAUNCHED();
        finish_rms_kernel<<<static_cast<unsigned>(runs.count), kThreads, 0, op.stream()>>>(
            runs, partial, op.out_data<float>(adafactor_rms::kSquares) + 2 * first);
        QT_LAUNCHED();
      };
      for_runs(op.attrs<AdafactorAttrs>(), kWide<G>, is_wide(grad) && is_wide(weights), launch);
    });
  });
}

void adafactor_apply(const OpContext& op) {
  const auto& attrs = op.attrs<AdafactorAttrs>();
  const bool split = op.in(adafactor_apply::kMaster).dtype == DType::kI16;
  const Master master{split ? nullptr : op.out_data<float>(adafactor_apply::kMasterOut),
                      split ? op.out_data<std::int16_t>(adafactor_apply::kMasterOut) : nullptr,
                      op.out_data<dbf16>(adafactor_apply::kWorking)};
  const Ema ema{op.out_data<float>(adafactor_apply::kEmaOut), attrs.ema};
  with_device_type(op.in(adafactor_apply::kGrad).dtype, [&]<class G>(G) {
    const auto* grad = op.in_data<G>(adafactor_apply::kGrad);
    const bool aligned = is_wide(grad) && master.is_wide() && is_wide(ema.mean);
    for_runs(attrs, kWide<G>, aligned, [&](const Runs& runs, std::size_t first) {
      const ApplyInputs in{op.in_data<float>(adafactor_apply::kScale),
                           op.in_data<float>(adafactor_apply::kLearningRate),
                           op.in_data<float>(adafactor_apply::kFactors),
                           op.in_data<float>(adafactor_apply::kSquares) + 2 * first,
                           attrs.epsilon2,
                           attrs.clip_threshold,
                           attrs.scale_parameter};
      apply_kernel<<<static_cast<unsigned>(runs.blocks), kThreads, 0, op.stream()>>>(runs, in, grad,
                                                                                     master, ema);
      QT_LAUNCHED();
    });
  });
}

}  // namespace quintet::cuda
