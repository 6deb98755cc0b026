// From a configuration to the program of a step: the one place where model, passes and optimizer
// are put together. The trainer, `plan`, `inspect`, `verify` and the benchmarks all start here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/loader/batch_plan.h"
#include "model/t5.h"
#include "optim/optimizer.h"
#include "parallel/grid.h"
#include "passes/pipeline_order.h"
#include "passes/recompute.h"
#include "program/op_decl.h"
#include "program/play.h"
#include "program/program.h"

namespace quintet {

struct StepOptions {
  T5Config model;
  BatchShape batch;
  std::int32_t accumulate = 1;  // micro-batches a step, on each rank
  ModelOptions options;
  Recompute recompute = Recompute::kNone;
  bool update = true;    // without it the step ends with the gradients, and they are its results
  bool limited = false;  // whether a step above io.limits updates nothing
  bool noise = false;    // whether the gradient noise scale is measured (noise_scale.h)
  OptimizerConfig optimizer;
  LayoutConfig layout;
  Grid grid;
  Target target;

  // Which samples are whose.
  BatchPlan batches() const { return {batch.micro_batch, accumulate, grid.dp}; }
  // Sequences of one step, over all ranks.
  std::int64_t global_batch() const { return batches().global_batch(); }
};

// "dp 2 (ZeRO 1) x tp 2 x pp 2 (interleaved)": the axes that are there.
std::string layout_name(const StepOptions& options);

// Refuses options that cannot be compiled, with the reason and what would work.
Status validate(const StepOptions& options);

// What validation does in such a run: the same forward under the same layout, of the same
// micro-batches, and nothing else: no dropout, no gradients, no update (options.gradients is
// false). One micro-batch at a time, or where there is a pipeline as many as fill it. `padded`: its
// sequences may be shorter than those that are trained on.
StepOptions validation_options(const StepOptions& step, bool padded);

// A rank's program: forward, backward, update; planned and verified. The options must be valid.
Program compile_step(const StepOptions& options, std::int32_t rank = 0);
// The program of validation_options(), to run between two steps of `step`, on its parameters and in
// its arena (plan_memory_beside).
Program compile_beside(const StepOptions& validation, const Program& step);

// What is wrong between the programs of all ranks (program/play.h); empty when they fit together. A
// large world is proved folded: data-parallel ranks whose programs are the same up to names count
// as one. If that one reaches its end, so do they, in step with each other.
std::vector<std::string> verify_all_ranks(const StepOptions& options);
// The same for a grid whose ranks' traces are given.
std::vector<std::string> verify_grid(const Grid& grid,
                                     const std::function<RankTrace(std::int32_t)>& trace_of_rank);

}  // namespace quintet
