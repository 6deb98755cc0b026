// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace quintet {

// Warm-up leads to `peak` in `warmup_steps`; what follows depends on `kind`. T5's own schedule,
// 1 / sqrt(max(step, 10^4)), is kind inverse_sqrt, warmup constant, warmup_steps 10000, peak 0.01.
struct LearningRateConfig {
  std::string kind = "inverse_sqrt";
  std::string warmup = "linear";
  double peak = 1e-3;
  std::int64_t warmup_steps = 100;
  double final_ratio = 0.1;
  // wsd: the rate stays at its peak and falls in the last steps.
  std::int64_t decay_steps = 0;
  std::string decay_shape = "linear";

  void list(FieldList& fields);
};

// Refuses keys without effect, and a warm-up and a decay that do not fit into a run.
Status validate(const LearningRateConfig& config, std::int64_t total_steps);

// The rate of a step, counted from 1, in a run of `total_steps`.
double learning_rate(const LearningRateConfig& config, std::int64_t step, std::int64_t total_steps);

}  // namespace quintet
