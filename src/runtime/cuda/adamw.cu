#include "program/ops/adamw.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/master.cuh"
#include "runtime/cuda/moments.cuh"
#include "runtime/cuda/philox.cuh"
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

// By one thread of each block.
__device__ Factors factors_of(const AdamWAttrs& attrs, const Inputs& in) {
  const auto step = static_cast<double>(*in.step);
  const double rate = *in.rate;
  const double correction1 = 1 - pow(static_cast<double>(attrs.beta1), step);
  const double correction2 = 1 - pow(static_cast<double>(attrs.beta2), step);
  return {static_cast<float>(rate * attrs.rate_scale / correction1),
          static_cast<float>(1 / sqrt(correction2)), 1 - *in.rate * attrs.weight_decay};
}

// From gradients, weights and moments to new weights and moments. kQuick: with the hardware's root
// and quotient, whose errors are lost in what small moments are rounded by, where instructions are
// what the kernel waits for.
template <int N, bool kQuick = false>
__device__ __forceinline__ void advance(const AdamWAttrs& attrs, const Factors& f, float scale,
                                        float (&g)[N], float (&w)[N], float (&m1)[N],
                                        float (&v1)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    g[j] *= scale;
    m1[j] = attrs.beta1 * m1[j] + (1 - attrs.beta1) * g[j];
    v1[j] = attrs.beta2 * v1[j] + (1 - attrs.beta2) * g[j] * g[j];
    if constexpr (kQuick) {
      float root;
      asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v1[j]));
      const float denominator = root * f.inverse_root2 + attrs.epsilon;
      w[j] = w[j] * f.keep - __fdividef(f.step_size * m1[j], denominator);
    } else {
      const float denominator = sqrtf(v1[j]) * f.inverse_root2 + attrs.epsilon;
      w[j] = w[j] * f.keep - f.step_size * m1[j] / denominator;
    }
  }
}

template <int N, class G>
__device__ __forceinline__ void update(const AdamWAttrs& attrs, const Factors& f, float scale,
                                       const G* grad, const Master& master, const Ema& ema,
                                       float* m, float* v, std::int64_t i) {
  float g[N], w[N], m1[N], v1[N];
  load_floats<N>(grad + i, g);
  load_floats<N>(m + i, m1);
  load_floats<N>(v + i, v1);
  master.load<N>(i, w);
  advance<N>(attrs, f, scale, g, w, m1, v1);
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
  if (threadIdx.x == 0) shared = factors_of(attrs, in);
  __syncthreads();
  const Factors factors = shared;
  const std::int64_t packs = count / N, stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < packs; i += stride)
    update<N>(attrs, factors, scale, grad, master, ema, m, v, i * N);
  for (std::int64_t i = packs * N + first; i < count; i += stride)
    update<1>(attrs, factors, scale, grad, master, ema, m, v, i);
}

// With moments that are not float32: a warp takes one block of them at a time, each lane packs of N
// elements: four, of a whole block, that share a block of random bits; one by one at the ends of
// weights and in the few that do not lie so.
template <int N, class G, class Moments>
__device__ __forceinline__ void update_block(const AdamWAttrs& attrs, const Factors& f, float scale,
                                             std::int64_t step, const G* grad, const Master& master,
                                             const Ema& ema, const Moments& moments,
                                             std::int64_t first, std::int64_t count) {
  constexpr int kPacks = kMomentBlock / 32 / N, kUnrolled = N == 4 ? kPacks : 1;
  const std::int64_t block = first / kMomentBlock;
  const auto at = [&](int pack) { return first + (pack * 32 + threadIdx.x % 32) * N; };
  const auto has = [&](int pack) { return N == 4 || at(pack) < count; };
  const auto scales = moments.scales(block);
  float m[kPacks][N] = {}, v[kPacks][N] = {}, g[kPacks][N], w[kPacks][N];
#pragma unroll(kUnrolled)
  for (int pack = 0; pack < kPacks; ++pack) {
    if (!has(pack)) continue;
    const std::int64_t i = at(pack);
    load_floats<N>(grad + i, g[pack]);
    moments.template load<N>(i, scales, m[pack], v[pack]);
    master.load<N>(i, w[pack]);
  }
#pragma unroll(kUnrolled)
  for (int pack = 0; pack < kPacks; ++pack) {
    if (!has(pack)) continue;
    advance<N, true>(attrs, f, scale, g[pack], w[pack], m[pack], v[pack]);
    master.store<N>(at(pack), w[pack]);
    ema.add<N>(at(pack), w[pack]);
  }
  const auto new_scales = moments.new_scales(block, m, v);
  MomentWords words(attrs.place, step);  // one by one
#pragma unroll(kUnrolled)
  for (int pack = 0; pack < kPacks; ++pack) {
    if (!has(pack)) continue;
    const std::int64_t i = at(pack);
    std::uint32_t random[N];
    if constexpr (N == 4) {
      const uint4 four = philox_words(attrs.place.seed, attrs.place.stream(step),
                                      static_cast<std::uint64_t>(attrs.place.element(i)) >> 2);
      random[0] = four.x;
      random[1] = four.y;
      random[2] = four.z;
      random[3] = four.w;
    } else {
      random[0] = words.at(attrs.place.element(i));
    }
    moments.template store<N>(i, new_scales, m[pack], v[pack], random);
  }
}

template <int N, class G, class Moments>
__global__ void __launch_bounds__(256)
    adamw_blocks_kernel(AdamWAttrs attrs, Inputs in, const G* grad, Master master, Ema ema,
                        Moments moments, std::int64_t count) {
  const float scale = *in.scale;
  if (isnan(scale)) return;
  __shared__ Factors shared;
  if (threadIdx.x == 0) shared = factors_of(attrs, in);
  __syncthreads();
  const Factors factors = shared;
  const std::int64_t step = *in.step;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x / 32 * kMomentBlock;
  const std::int64_t warp = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  for (std::int64_t first = warp * kMomentBlock; first < count; first += stride) {
    if (first + kMomentBlock <= count) {
      update_block<N>(attrs, factors, scale, step, grad, master, ema, moments, first, count);
    } else {
      update_block<1>(attrs, factors, scale, step, grad, master, ema, moments, first, count);
    }
  }
}

template <class G, class Moments>
void launch_blocks(const OpContext& op, const Inputs& in, const G* grad, const Master& master,
                   const Ema& ema, const Moments& moments, std::int64_t count) {
  const bool wide = is_wide(grad) && moments.is_wide() && is_wide(ema.mean) && master.is_wide() &&
                    op.attrs<AdamWAttrs>().place.in_fours();
  // No more blocks than run at the same time: each begins with two powers in double.
  const auto grid = static_cast<unsigned>(std::min(ceil_div(moment_blocks(count) * 32, 256),
                                                   std::int64_t{op.device().multiprocessors} * 4));
  const auto kernel =
      wide ? adamw_blocks_kernel<4, G, Moments> : adamw_blocks_kernel<1, G, Moments>;
  kernel<<<grid, 256, 0, op.stream()>>>(op.attrs<AdamWAttrs>(), in, grad, master, ema, moments,
                                        count);
  QT_LAUNCHED();
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
    const Ema ema{op.out_data<float>(adamw::kEmaOut), op.attrs<AdamWAttrs>().ema};
    const DType kept = op.in(adamw::kM).dtype;
    if (kept == DType::kBF16)
      return launch_blocks(op, in, grad, master, ema, HalfMoments(op), count);
    if (kept == DType::kU8)
      return launch_blocks(op, in, grad, master, ema, CodedMoments(op), count);
    auto *m = op.out_data<float>(adamw::kMOut), *v = op.out_data<float>(adamw::kVOut);
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
