// Puts a batch where a step's program expects it.
#pragma once

#include <array>
#include <cmath>

#include "base/result.h"
#include "data/batch.h"
#include "runtime/executor.h"
#include "train/step_program.h"

namespace quintet {

// Writes what this rank needs of micro-batch `index` of the next step. Refuses ids outside the
// vocabulary and lengths outside the source, before anything is written.
Status feed(Executor& executor, std::int32_t index, const Batch& batch, const StepOptions& options);

struct StepResult {
  double loss = 0;  // cross-entropy, mean over the counted labels of the step
  double z_loss = 0;
  double grad_norm = 0;     // before clipping
  double micro_square = 0;  // StepIo::micro_square, where it is measured
};
// Starts one step on what was fed. Where the executor runs beside the host, the next step may be
// fed before this one is finished.
// `limits`: of loss and gradient norm, where the program has them.
Status start_step(Executor& executor, std::int64_t step, double learning_rate,
                  std::array<float, 2> limits = {INFINITY, INFINITY});
// Waits until it is done.
Result<StepResult> finish_step(Executor& executor);
// Both.
Result<StepResult> run_step(Executor& executor, std::int64_t step, double learning_rate);

}  // namespace quintet
