#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quintet {

void LearningRateConfig::list(FieldList& fields) {
  fields.add("kind", kind, "how the rate falls after the warm-up",
             one_of({"inverse_sqrt", "linear", "cosine", "constant"}));
  fields.add("warmup", warmup,
             "during the warm-up: rise from 0 (linear) or hold the peak (constant)",
             one_of({"linear", "constant"}));
  fields.add("peak", peak, "the highest rate", between(0, 100));
  fields.add("warmup_steps", warmup_steps, "length of the warm-up in steps", at_least(0));
  fields.add("final_ratio", final_ratio, "linear and cosine end at this share of the peak",
             between(0, 1));
}

double learning_rate(const LearningRateConfig& c, std::int64_t step, std::int64_t total_steps) {
  const auto at = static_cast<double>(step), warmup = static_cast<double>(c.warmup_steps);
  if (step <= c.warmup_steps) return c.warmup == "linear" ? c.peak * at / warmup : c.peak;
  if (c.kind == "constant") return c.peak;
  if (c.kind == "inverse_sqrt") return c.peak * std::sqrt(std::max(warmup, 1.0) / at);
  const double length = std::max<double>(static_cast<double>(total_steps) - warmup, 1);
  const double progress = std::clamp((at - warmup) / length, 0.0, 1.0);
  const double fall =
      c.kind == "linear" ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return c.peak * (c.final_ratio + (1 - c.final_ratio) * fall);
}

}  // namespace quintet
