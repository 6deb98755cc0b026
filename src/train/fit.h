// Makes the executor of a step, or says what would fit where this one does not.
#pragma once

#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "runtime/executor.h"
#include "train/step_program.h"

namespace quintet {

// As make_executor(). Out of memory is refused before anything is allocated, with what the step
// needs, what is free, and the nearest settings that fit; and where the ranks of a host do not fit
// there together. Called by all ranks. `saving` bytes of host memory are wanted
// beside it, for checkpoints.
Result<std::unique_ptr<Executor>> make_fitting_executor(const Program& program,
                                                        const StepOptions& options, World& world,
                                                        std::int64_t saving = 0);

// The settings nearest to these whose step needs at most `bytes` on a rank, for people; empty where
// none was found.
std::string nearest_that_fit(const StepOptions& options, std::int32_t rank, std::int64_t bytes);

}  // namespace quintet
