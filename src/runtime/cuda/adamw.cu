#include "program/ops/adamw.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/master.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

// What the device alone knows at the time of the step.
struct Inputs {
  const float *scale, *rate;
  const std::int64_t* step;
};

struct Factors {
  float step_size, inverse_root2, keep;
};

template <int N, class G>
__device__ __forceinline__ void update(const AdamWAttrs& attrs, const Factors& f, float scale,
                                       const G* grad, const Master& master, const Ema& ema,
                                       float* m, float* v, std::int64_t i) {
  float g[N], w[N], m1[N], v1[N];
  load_floats<N>(grad + i, g);
  load_floats<N>(m + i, m1);
  load_floats<N>(v + i, v1);
  master.load<N>(i, w);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    g[j] *= scale;
    m1[j] = attrs.beta1 * m1[j] + (1 - attrs.beta1) * g[j];
    v1[j] = attrs.beta2 * v1[j] + (1 - attrs.beta2) * g[j] * g[j];
    const float denominator = sqrtf(v1[j]) * f.inverse_root2 + attrs.epsilon;
    w[j] = w[j] * f.keep - f.step_size * m1[j] / denominator;
  }
  store_floats<N>(m + i, m1);
  store_floats<N>(v + i, v1);
  master.store<N>(i, w);
  ema.add<N>(i, w);
}

template <class G, int N>
__global__ void __launch_bounds__(256)
    adamw_kernel(AdamWAttrs attrs, Inputs in, const G* grad, Master master, Ema ema, float* m,
                 float* v, std::int64_t count) {
  const float scale = *in.scale;
  if (isnan(scale)) return;  // the gradients are not finite: leave everything as it was
  __shared__ Factors shared;
  if (threadIdx.x == 0) {
    const auto step = static_cast<double>(*in.step);
    const double rate = *in.rate;
    const double correction1 = 1 - pow(static_cast<double>(attrs.beta1), step);
    const double correction2 = 1 - pow(static_cast<double>(attrs.beta2), step);
    shared = {static_cast<float>(rate * attrs.rate_scale / correction1),
              static_cast<float>(1 / sqrt(correction2)), 1 - *in.rate * attrs.weight_decay};
  }
  __syncthreads();
  const Factors factors = shared;
  const std::int64_t packs = count / N, stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < packs; i += stride)
    update<N>(attrs, factors, scale, grad, master, ema, m, v, i * N);
  for (std::int64_t i = packs * N + first; i < count; i += stride)
    update<1>(attrs, factors, scale, grad, master, ema, m, v, i);
}

}  // namespace

void adamw(const OpContext& op) {
  const bool split = op.in(adamw::kMaster).dtype == DType::kI16;
  QT_CHECK(!op.has_out(adamw::kWorking) || op.out(adamw::kWorking).dtype == DType::kBF16,
           "a working copy in {}", name_of(op.out(adamw::kWorking).dtype));
  const Master master{split ? nullptr : op.out_data<float>(adamw::kMasterOut),
                      split ? op.out_data<std::int16_t>(adamw::kMasterOut) : nullptr,
                      op.out_data<dbf16>(adamw::kWorking)};
  const Inputs in{op.in_data<float>(adamw::kScale), op.in_data<float>(adamw::kLearningRate),
                  op.in_data<std::int64_t>(adamw::kStep)};
  const std::int64_t count = op.in(adamw::kMaster).shape.numel();
  with_device_type(op.in(adamw::kGrad).dtype, [&]<class G>(G) {
    const auto* grad = op.in_data<G>(adamw::kGrad);
    auto *m = op.out_data<float>(adamw::kMOut), *v = op.out_data<float>(adamw::kVOut);
    const Ema ema{op.out_data<float>(adamw::kEmaOut), op.attrs<AdamWAttrs>().ema};
    const bool wide =
        is_wide(grad) && is_wide(m) && is_wide(v) && is_wide(ema.mean) && master.is_wide();
    const unsigned grid = grid_for(count / (wide ? 4 : 1), 256, op.device().multiprocessors);
    const auto kernel = wide ? adamw_kernel<G, 4> : adamw_kernel<G, 1>;
    kernel<<<grid, 256, 0, op.stream()>>>(op.attrs<AdamWAttrs>(), in, grad, master, ema, m, v,
                                          count);
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
