// Smaller batches at first: the sizes that a run's steps go through (batch.ramp).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "train/run_config.h"

namespace quintet {

struct BatchPhase {
  std::int64_t first_step = 1, last_step = 0;
  std::int64_t global = 0;  // sequences per step; 0: as BatchSection says without a ramp
  std::int64_t steps() const { return last_step - first_step + 1; }
};

// The phases of a run, in order; one where there is no ramp. The last one lasts to the last step,
// and phases that would begin after it are not there.
Result<std::vector<BatchPhase>> batch_phases(const RunConfig& config);
// The one that the step after `step` belongs to.
const BatchPhase& phase_after(const std::vector<BatchPhase>& phases, std::int64_t step);

}  // namespace quintet
