#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quintet {

void LearningRateConfig::list(FieldList& fields) {
  fields.add("kind", kind, "how the rate falls after the warm-up",
             one_of({"inverse_sqrt", "linear", "cosine", "constant", "wsd"}));
  fields.add("warmup", warmup,
             "during the warm-up: rise from 0 (linear) or hold the peak (constant)",
             one_of({"linear", "constant"}));
  fields.add("peak", peak, "the highest rate", between(0, 100));
  fields.add("warmup_steps", warmup_steps, "length of the warm-up in steps", at_least(0));
  fields.add("final_ratio", final_ratio, "linear, cosine and wsd end at this share of the peak",
             between(0, 1));
  fields.add("decay_steps", decay_steps,
             "wsd (warm-up, stable, decay): length of the decay at the end of the run; 0: a tenth "
             "of the run",
             at_least(0));
  fields.add("decay_shape", decay_shape,
             "wsd: how the rate falls, by the share x of the decay: 1-x, "
             "half a cosine, or 1-sqrt(x)",
             one_of({"linear", "cosine", "sqrt"}));
}

namespace {

std::int64_t wsd_steps(const LearningRateConfig& c, std::int64_t total_steps) {
  return c.decay_steps > 0 ? c.decay_steps : std::max<std::int64_t>(total_steps / 10, 1);
}

// From 1 at the beginning to 0 at the end.
double fall_of(const std::string& shape, double progress) {
  if (shape == "linear") return 1 - progress;
  if (shape == "sqrt") return 1 - std::sqrt(progress);
  return 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace

Status validate(const LearningRateConfig& c, std::int64_t total_steps) {
  const LearningRateConfig none;
  if (c.kind != "wsd") {
    const bool shape = c.decay_shape != none.decay_shape;
    if (c.decay_steps == none.decay_steps && !shape) return {};
    return usage_error("schedule.{} has no effect with schedule.kind = \"{}\"; it is for \"wsd\"",
                       shape ? "decay_shape" : "decay_steps", c.kind);
  }
  const std::int64_t decay = wsd_steps(c, total_steps);
  if (c.warmup_steps + decay <= total_steps) return {};
  return usage_error(
      "schedule.kind = \"wsd\": a warm-up of {} steps and a decay of {} do not fit into "
      "train.steps = {}; lower schedule.warmup_steps or schedule.decay_steps",
      c.warmup_steps, decay, total_steps);
}

double learning_rate(const LearningRateConfig& c, std::int64_t step, std::int64_t total_steps) {
  const auto at = static_cast<double>(step), warmup = static_cast<double>(c.warmup_steps);
  if (step <= c.warmup_steps) return c.warmup == "linear" ? c.peak * at / warmup : c.peak;
  if (c.kind == "constant") return c.peak;
  if (c.kind == "inverse_sqrt") return c.peak * std::sqrt(std::max(warmup, 1.0) / at);
  const bool wsd = c.kind == "wsd";
  const double begin = wsd ? static_cast<double>(total_steps - wsd_steps(c, total_steps)) : warmup;
  const double length = std::max<double>(static_cast<double>(total_steps) - begin, 1);
  const double progress = std::clamp((at - begin) / length, 0.0, 1.0);
  const double fall = fall_of(wsd ? c.decay_shape : c.kind, progress);
  return c.peak * (c.final_ratio + (1 - c.final_ratio) * fall);
}

}  // namespace quintet
