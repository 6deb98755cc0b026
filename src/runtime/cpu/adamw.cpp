#include "program/ops/adamw.h"

#include <cmath>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/master.h"

namespace quintet::cpu {
namespace {

template <bool kHasEma, class G, class Master>
void update(const OpContext& op, Master master) {
  const auto& attrs = op.attrs<AdamWAttrs>();
  const auto* grad = op.in_data<G>(adamw::kGrad);
  const float scale = *op.in_data<float>(adamw::kScale);
  if (std::isnan(scale)) return;  // the gradients are not finite: leave everything as it was
  const float rate = *op.in_data<float>(adamw::kLearningRate);
  const auto step = static_cast<double>(*op.in_data<std::int64_t>(adamw::kStep));
  const double correction1 = 1 - std::pow(static_cast<double>(attrs.beta1), step);
  const double correction2 = 1 - std::pow(static_cast<double>(attrs.beta2), step);
  const auto step_size = static_cast<float>(static_cast<double>(rate) *
                                            static_cast<double>(attrs.rate_scale) / correction1);
  const auto inverse_root2 = static_cast<float>(1 / std::sqrt(correction2));
  const float keep = 1 - rate * attrs.weight_decay;
  const float b1 = attrs.beta1, b2 = attrs.beta2, epsilon = attrs.epsilon;
  auto *m = op.out_data<float>(adamw::kMOut), *v = op.out_data<float>(adamw::kVOut);
  const Ema ema{kHasEma ? op.out_data<float>(adamw::kEmaOut) : nullptr, attrs.ema};
  parallel_for(op.in(adamw::kMaster).shape.numel(), kElementGrain,
               [=](std::int64_t begin, std::int64_t end, int) {
#pragma omp simd
                 for (std::int64_t i = begin; i < end; ++i) {
                   const float g = static_cast<float>(grad[i]) * scale;
                   const float m1 = b1 * m[i] + (1 - b1) * g;
                   const float v1 = b2 * v[i] + (1 - b2) * g * g;
                   m[i] = m1;
                   v[i] = v1;
                   const float denominator = std::sqrt(v1) * inverse_root2 + epsilon;
                   const float w = master.load(i) * keep - step_size * m1 / denominator;
                   master.store(i, w);
                   if constexpr (kHasEma) ema.add(i, w);
                 }
               });
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
