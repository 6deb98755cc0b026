// Adafactor: the size of the update, and the update.
#include <algorithm>

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
  const float *scale, *rate, *squares;
  float epsilon2, clip_threshold, weight_decay, rate_scale;
  bool scale_parameter;
};

template <class G, int N>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(Run s, ApplyInputs in, const G* grad, const float* factors, Master master,
                 Ema ema) {
  const float scale = *in.scale;
  if (isnan(scale)) return;  // the gradients are not finite: leave everything as it was
  const auto size = static_cast<float>(s.rows * s.cols);
  const float update_rms = sqrtf(in.squares[0] / size), weight_rms = sqrtf(in.squares[1] / size);
  const float lr = *in.rate * (in.scale_parameter ? fmaxf(in.epsilon2, weight_rms) : 1.0f);
  ApplyUpdate<G, N> body{ElementFactors<N>(s, factors),
                         grad,
                         master,
                         ema,
                         1 - lr * in.weight_decay,
                         scale * lr * in.rate_scale / fmaxf(1.0f, update_rms / in.clip_threshold)};
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

}  // namespace

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
  const Ema ema{op.out_data<float>(adafactor_apply::kEmaOut), attrs.ema};
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
                           s.weight_decay,
                           s.rate_scale,
                           attrs.scale_parameter};
      with_width(s, grad, [&]<int N>() {
        apply_kernel<G, N><<<grid_of(s), kThreads, 0, op.stream()>>>(
            run_of(s), in, grad, op.in_data<float>(adafactor_apply::kFactors), master, ema);
        QT_LAUNCHED();
      });
    }
  });
}

}  // namespace quintet::cuda
