#include "train/step_program.h"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/index.h"
#include "base/parallel_for.h"
#include "passes/autodiff.h"
#include "passes/early_update.h"
#include "passes/finish.h"
#include "passes/memory_plan.h"
#include "passes/offload.h"
#include "passes/pipeline.h"
#include "passes/quantize_at_source.h"
#include "passes/zero.h"
#include "program/verifier.h"
#include "runtime/backend.h"

namespace quintet {
namespace {

// Worlds up to this size are proved rank by rank.
constexpr std::int32_t kSmallWorld = 16;
// Up to this size every rank's program is compared before its data-parallel rank is folded; beyond,
// the first of each tensor-parallel group speaks for the others.
constexpr std::int32_t kComparedWhole = 256;

std::int32_t pieces_per_stage(const StepOptions& options) {
  return options.layout.schedule == "interleaved"
             ? static_cast<std::int32_t>(options.layout.interleave)
             : 1;
}

Result<StageCut> cut_of(const StepOptions& options) {
  return cut_into_stages(options.model, options.batch.source, options.batch.target,
                         options.grid.pp * pieces_per_stage(options));
}

// The rows and columns of everything the layers multiply.
Status validate_for_fp8(const StepOptions& options) {
  const T5Config& model = options.model;
  const BatchShape& batch = options.batch;
  const std::int64_t tp = options.grid.tp;
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"d_model", model.d_model},
      {"heads x d_kv / parallel.tp", model.inner() / tp},
      {"d_ff / parallel.tp", model.d_ff / tp},
      {"batch.micro_batch x batch.source", batch.micro_batch * batch.source},
      {"batch.micro_batch x batch.target", batch.micro_batch * batch.target}};
  for (const auto& [name, size] : sizes) {
    if (size % quantize::kMultiple != 0) {
      return usage_error(
          "train.precision = \"fp8\" multiplies matrices whose sides are multiples of {}, and {} "
          "is "
          "{}; choose other sizes or \"bf16\"",
          quantize::kMultiple, name, size);
    }
  }
  return {};
}

}  // namespace

std::string layout_name(const StepOptions& options) {
  const Grid& grid = options.grid;
  std::vector<std::string> axes;
  if (grid.dp > 1) axes.push_back(fmt::format("dp {} (ZeRO {})", grid.dp, options.layout.zero));
  if (grid.tp > 1) axes.push_back(fmt::format("tp {}", grid.tp));
  if (grid.pp > 1) {
    axes.push_back(fmt::format("pp {}", grid.pp));
    if (options.layout.schedule != "1f1b")
      axes.back() += fmt::format(" ({} {})", options.layout.schedule, options.layout.interleave);
  }
  return axes.empty() ? "one rank" : fmt::format("{}", fmt::join(axes, " x "));
}

Status validate(const StepOptions& options) {
  QT_TRY(validate(options.model));
  QT_TRY(validate(options.model, options.batch, options.grid.tp));
  QT_TRY(validate(options.optimizer));
  if (options.options.fp8) QT_TRY(validate_for_fp8(options));
  if (options.layout.gather_fp8 && (!options.options.fp8 || options.layout.zero != 3)) {
    const char* precision = options.options.fp8                     ? "fp8"
                            : options.options.dtype == DType::kBF16 ? "bf16"
                                                                    : "fp32";
    return usage_error(
        "parallel.gather_fp8 gathers, instead of weights, the codes that are multiplied: it needs "
        "train.precision = \"fp8\" and parallel.zero = 3, which are \"{}\" and {}",
        precision, options.layout.zero);
  }
  if (options.layout.schedule == "interleaved" && options.grid.pp == 1) {
    return usage_error("the interleaved schedule needs a pipeline: parallel.pp is 1");
  }
  if (options.layout.schedule != "interleaved" && options.layout.interleave > 1) {
    return usage_error(
        "parallel.interleave = {} means something only with parallel.schedule = "
        "\"interleaved\"",
        options.layout.interleave);
  }
  if (options.noise && options.grid.pp > 1) {
    return usage_error(
        "train.noise_scale with parallel.pp = {}: stages that share a weight each have a part of a "
        "micro-batch's gradient, and its norm is not known; measure with pp = 1, any dp and tp",
        options.grid.pp);
  }
  if (options.noise && options.accumulate * options.grid.dp < 2) {
    return usage_error(
        "train.noise_scale compares one micro-batch's gradient with that of the whole step, which "
        "has no other; set a smaller batch.micro_batch and batch.accumulate = 2 or more, or use "
        "data-parallel ranks");
  }
  QT_TRY(cut_of(options));
  QT_TRY(pipeline_order(options.layout.schedule, options.grid.pp, 0, pieces_per_stage(options),
                        options.accumulate));
  return {};
}

namespace {

// All of a rank's program but the places of its tensors.
Program order_step(const StepOptions& options, std::int32_t rank) {
  const Grid& grid = options.grid;
  const Place place = grid.place_of(rank);
  const StageCut cut = cut_of(options).value();
  auto order = pipeline_order(options.layout.schedule, grid.pp, place.pp, pieces_per_stage(options),
                              options.accumulate)
                   .value();
  const bool trains = options.options.gradients;

  Program program = emit_t5(options.model, options.batch, options.options, place,
                            grid.ranks_along(place, false, true, false), cut);
  if (trains) {
    autodiff(program);
    recompute(program, options.recompute);
  } else {
    std::erase_if(order, [](const PipelineAction& action) { return !action.forward; });
  }
  quantize_at_source(program);
  pipeline(program, grid, order, options.accumulate);
  zero(program, grid, options.layout, trains && options.noise);
  if (trains && options.update) {
    std::vector<std::int32_t> world(static_cast<std::size_t>(grid.size()));
    std::iota(world.begin(), world.end(), 0);
    const std::size_t update_begin = program.ops.size();
    emit_update(program, options.optimizer, world, options.options.seed, options.limited);
    gather_updated_parameters(program);
    if (is_unconditional(options.optimizer, options.limited)) update_early(program, update_begin);
    offload(program, options.optimizer.offload);
  } else if (trains) {
    for (const Shard& shard : program.shards) program.results.push_back(shard.grad);
  }
  drop_first_addends(program);
  insert_waits(program);
  return program;
}

}  // namespace

namespace {

// Plans a program's memory and proves it.
Program finished(Program program, const StepOptions& options, const Program* step) {
  remove_unused_tensors(program);
  const auto backend = make_backend(options.target);
  step == nullptr ? plan_memory(program, *backend) : plan_memory_beside(program, *step, *backend);
  const auto findings = verify(program);
  QT_CHECK(findings.empty(), "the compiled program is unsound:\n  {}", fmt::join(findings, "\n  "));
  return program;
}

}  // namespace

StepOptions validation_options(const StepOptions& step, bool padded) {
  StepOptions options = step;
  options.options.gradients = false;
  options.noise = false;
  options.batch.padded = padded && !options.batch.packed;
  if (options.grid.pp == 1) options.accumulate = 1;
  return options;
}

Program compile_step(const StepOptions& options, std::int32_t rank) {
  return finished(order_step(options, rank), options, nullptr);
}

Program compile_beside(const StepOptions& validation, const Program& step) {
  return finished(order_step(validation, step.place.rank), validation, &step);
}

std::vector<std::string> verify_grid(const Grid& grid,
                                     const std::function<RankTrace(std::int32_t)>& trace_of_rank) {
  // 1. Each data-parallel rank stands for itself, or for all that run its program.
  std::vector<std::int32_t> stands_for(index(grid.dp));
  std::iota(stands_for.begin(), stands_for.end(), 0);
  if (grid.size() > kSmallWorld) {
    const std::int32_t compared = grid.size() > kComparedWhole ? 1 : grid.tp;
    std::vector<std::vector<RankTrace>> by_dp(index(grid.dp));
    parallel_items(grid.dp, true, [&](std::int64_t dp, int) {
      for (std::int32_t pp = 0; pp < grid.pp; ++pp) {
        for (std::int32_t tp = 0; tp < compared; ++tp) {
          const std::int32_t rank = grid.rank_of(static_cast<std::int32_t>(dp), tp, pp);
          by_dp[index(dp)].push_back(renamed(trace_of_rank(rank), [&](std::int32_t other) {
            const Place place = grid.place_of(other);
            return grid.rank_of(0, place.tp, place.pp);
          }));
        }
      }
    });
    for (std::int32_t dp = 1; dp < grid.dp; ++dp) {
      const auto first = std::find_if(by_dp.begin(), by_dp.end(), [&](const auto& traces) {
        return std::equal(traces.begin(), traces.end(), by_dp[index(dp)].begin(),
                          [](const auto& a, const auto& b) { return a.items == b.items; });
      });
      stands_for[index(dp)] = static_cast<std::int32_t>(first - by_dp.begin());
    }
  }
  // 2. Their programs are played against each other.
  std::vector<std::int32_t> ranks;
  for (std::int32_t rank = 0; rank < grid.size(); ++rank) {
    const std::int32_t dp = grid.place_of(rank).dp;
    if (stands_for[index(dp)] == dp) ranks.push_back(rank);
  }
  std::vector<RankTrace> traces(ranks.size());
  parallel_items(static_cast<std::int64_t>(ranks.size()), true, [&](std::int64_t i, int) {
    traces[index(i)] = renamed(trace_of_rank(ranks[index(i)]), [&](std::int32_t rank) {
      const Place place = grid.place_of(rank);
      return grid.rank_of(stands_for[index(place.dp)], place.tp, place.pp);
    });
  });
  return play(traces);
}

std::vector<std::string> verify_all_ranks(const StepOptions& options) {
  const TraceScope scope{.issued_in_order = make_backend(options.target)->issues_in_order()};
  return verify_grid(options.grid,
                     [&](std::int32_t rank) { return trace_of(order_step(options, rank), scope); });
}

}  // namespace quintet
