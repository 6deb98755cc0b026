#include "train/step_program.h"

#include <numeric>

#include <fmt/ranges.h>

#include "base/check.h"
#include "passes/autodiff.h"
#include "passes/finish.h"
#include "passes/memory_plan.h"
#include "passes/pipeline.h"
#include "passes/zero.h"
#include "program/verifier.h"
#include "program/world_verifier.h"

namespace quintet {
namespace {

// Worlds up to this size are proved rank by rank.
constexpr std::int32_t kSmallWorld = 16;

std::int32_t pieces_per_stage(const StepOptions& options) {
  return options.layout.schedule == "interleaved"
             ? static_cast<std::int32_t>(options.layout.interleave)
             : 1;
}

Result<StageCut> cut_of(const StepOptions& options) {
  return cut_into_stages(options.model, options.batch.source, options.batch.target,
                         options.grid.pp * pieces_per_stage(options));
}

}  // namespace

Status validate(const StepOptions& options) {
  QT_TRY(validate(options.model));
  QT_TRY(validate(options.model, options.batch, options.grid.tp));
  if (options.layout.schedule == "interleaved" && options.grid.pp == 1) {
    return usage_error("the interleaved schedule needs a pipeline: parallel.pp is 1");
  }
  if (options.layout.schedule != "interleaved" && options.layout.interleave > 1) {
    return usage_error(
        "parallel.interleave = {} means something only with parallel.schedule = "
        "\"interleaved\"",
        options.layout.interleave);
  }
  QT_TRY(cut_of(options));
  QT_TRY(pipeline_order(options.layout.schedule, options.grid.pp, 0, pieces_per_stage(options),
                        options.accumulate));
  return {};
}

Program compile_step(const StepOptions& options, std::int32_t rank) {
  const Grid& grid = options.grid;
  const Place place = grid.place_of(rank);
  const StageCut cut = cut_of(options).value();
  const auto order = pipeline_order(options.layout.schedule, grid.pp, place.pp,
                                    pieces_per_stage(options), options.accumulate)
                         .value();

  Program program = emit_t5(options.model, options.batch, options.options, place,
                            grid.ranks_along(place, false, true, false), cut);
  autodiff(program);
  recompute(program, options.recompute);
  pipeline(program, grid, order, options.accumulate);
  zero(program, grid, options.layout);
  if (options.update) {
    std::vector<std::int32_t> world(static_cast<std::size_t>(grid.size()));
    std::iota(world.begin(), world.end(), 0);
    emit_update(program, options.optimizer, world);
    gather_updated_parameters(program);
  } else {
    for (const Shard& shard : program.shards) program.results.push_back(shard.grad);
  }
  drop_first_addends(program);
  insert_waits(program);
  remove_unused_tensors(program);
  plan_memory(program, options.target);
  const auto findings = verify(program);
  QT_CHECK(findings.empty(), "the compiled program is unsound:\n  {}", fmt::join(findings, "\n  "));
  return program;
}

std::vector<std::string> verify_all_ranks(const StepOptions& options) {
  const Grid& grid = options.grid;
  std::vector<RankTrace> traces;
  if (grid.size() <= kSmallWorld) {
    for (std::int32_t rank = 0; rank < grid.size(); ++rank)
      traces.push_back(trace_of(compile_step(options, rank)));
    return verify_world(traces);
  }
  const auto first_of_its_kind = [&](std::int32_t rank) {
    const Place place = grid.place_of(rank);
    return grid.rank_of(0, place.tp, place.pp);
  };
  const auto folded = [&](std::int32_t dp, std::int32_t tp, std::int32_t pp) {
    return renamed(trace_of(compile_step(options, grid.rank_of(dp, tp, pp))), first_of_its_kind);
  };
  for (std::int32_t pp = 0; pp < grid.pp; ++pp) {
    for (std::int32_t tp = 0; tp < grid.tp; ++tp) {
      traces.push_back(folded(0, tp, pp));
      // Comparing for every place would take as long as compiling them all; the first has
      // everything that could differ.
      if (tp > 0) continue;
      for (const std::int32_t dp : {1, grid.dp / 2, grid.dp - 1}) {
        if (dp > 0 && dp < grid.dp && !(folded(dp, tp, pp).items == traces.back().items)) {
          return {fmt::format("rank {} does not run the program of rank {}",
                              grid.rank_of(dp, tp, pp), traces.back().rank)};
        }
      }
    }
  }
  return verify_world(traces);
}

}  // namespace quintet
