#include "program/ops/adamw.h"

#include <cmath>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/master.h"
#include "runtime/cpu/moments.h"

namespace quintet::cpu {
namespace {

template <bool kHasEma, class G, class Master>
struct AdamWUpdate {
  const G* grad;
  Master master;
  Ema ema;
  float scale, step_size, inverse_root2, keep, b1, b2, epsilon;

  // Of elements [begin, end), whose moments are m[0], v[0] and so on.
  void run(std::int64_t begin, std::int64_t end, float* m, float* v) const {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = static_cast<float>(grad[i]) * scale;
      const float m1 = b1 * m[i - begin] + (1 - b1) * g;
      const float v1 = b2 * v[i - begin] + (1 - b2) * g * g;
      m[i - begin] = m1;
      v[i - begin] = v1;
      const float denominator = std::sqrt(v1) * inverse_root2 + epsilon;
      const float w = master.load(i) * keep - step_size * m1 / denominator;
      master.store(i, w);
      if constexpr (kHasEma) ema.add(i, w);
    }
  }
};

// With moments that are not float32.
template <class Moments, class Update>
void update_blocks(const OpContext& op, const Update& update, const Moments& moments) {
  const MomentPlace& place = op.attrs<AdamWAttrs>().place;
  const std::int64_t step = *op.in_data<std::int64_t>(adamw::kStep);
  static_assert(kElementGrain % kMomentBlock == 0);
  parallel_for(op.in(adamw::kMaster).shape.numel(), kElementGrain,
               [=](std::int64_t begin, std::int64_t end, int) {
                 MomentBuffers buffers;
                 for (std::int64_t first = begin; first < end; first += kMomentBlock) {
                   const std::int64_t count = std::min(kMomentBlock, end - first);
                   moments.load(first, count, buffers);
                   update.run(first, first + count, buffers.m, buffers.v);
                   moments.store(first, count, buffers, buffers.draw(place, step, first, count));
                 }
               });
}

template <bool kHasEma, class G, class Master>
void update(const OpContext& op, Master master) {
  const auto& attrs = op.attrs<AdamWAttrs>();
  const float scale = *op.in_data<float>(adamw::kScale);
  if (std::isnan(scale)) return;  // the gradients are not finite: leave everything as it was
  const float rate = *op.in_data<float>(adamw::kLearningRate);
  const auto step = static_cast<double>(*op.in_data<std::int64_t>(adamw::kStep));
  const double correction1 = 1 - std::pow(static_cast<double>(attrs.beta1), step);
  const double correction2 = 1 - std::pow(static_cast<double>(attrs.beta2), step);
  const AdamWUpdate<kHasEma, G, Master> update{
      .grad = op.in_data<G>(adamw::kGrad),
      .master = master,
      .ema = {kHasEma ? op.out_data<float>(adamw::kEmaOut) : nullptr, attrs.ema},
      .scale = scale,
      .step_size = static_cast<float>(static_cast<double>(rate) *
                                      static_cast<double>(attrs.rate_scale) / correction1),
      .inverse_root2 = static_cast<float>(1 / std::sqrt(correction2)),
      .keep = 1 - rate * attrs.weight_decay,
      .b1 = attrs.beta1,
      .b2 = attrs.beta2,
      .epsilon = attrs.epsilon};
  switch (op.in(adamw::kM).dtype) {
    case DType::kBF16:
      return update_blocks(op, update, HalfMoments(op));
    case DType::kU8:
      return update_blocks(op, update, CodedMoments(op));
    default: {
      auto *m = op.out_data<float>(adamw::kMOut), *v = op.out_data<float>(adamw::kVOut);
      parallel_for(op.in(adamw::kMaster).shape.numel(), kElementGrain,
                   [=](std::int64_t begin, std::int64_t end, int) {
                     update.run(begin, end, m + begin, v + begin);
                   });
    }
  }
}

}  // namespace

void adamw(const OpContext& op) {
  with_float_type(op.in(adamw::kGrad).dtype, [&]<class G>(G) {
    with_master(op, adamw::kMaster, adamw::kWorkingIn, adamw::kWorking, [&](auto master) {
      op.has_out(adamw::kEmaOut) ? update<true, G>(op, master) : update<false, G>(op, master);
    });
  });
}

}  // namespace quintet::cpu
