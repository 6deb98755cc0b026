// From a configuration to the program of a step: the one place where model, passes and optimizer
// are put together. The trainer, `plan`, `inspect`, `verify` and the benchmarks all start here.
#pragma once

#include <cstdint>

#include "model/t5.h"
#include "optim/optimizer.h"
#include "passes/recompute.h"
#include "program/op_decl.h"
#include "program/program.h"

namespace quintet {

struct StepOptions {
  T5Config model;
  BatchShape batch;
  std::int32_t accumulate = 1;  // micro-batches a step
  ModelOptions options;
  Recompute recompute = Recompute::kNone;
  bool update = true;  // without it the step ends with the gradients, and they are its results
  OptimizerConfig optimizer;
  Target target;
};

// Forward, backward, update; planned and verified.
Program compile_step(const StepOptions& options);

}  // namespace quintet
