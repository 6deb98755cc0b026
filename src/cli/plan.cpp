#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "runtime/dry_run.h"

namespace quintet {
namespace {

nlohmann::ordered_json to_json(const StepOptions& step, const DryRun& plan) {
  nlohmann::ordered_json at_peak, highest;
  for (int c = 0; c < kStorageCount; ++c) {
    const auto name = std::string(name_of(static_cast<Storage>(c)));
    at_peak[name] = plan.at_peak[static_cast<std::size_t>(c)];
    highest[name] = plan.highest[static_cast<std::size_t>(c)];
  }
  return {{"model", step.model.name},
          {"parameters", step.model.parameters()},
          {"micro_batch", step.batch.micro_batch},
          {"accumulate", step.accumulate},
          {"source", step.batch.source},
          {"target", step.batch.target},
          {"total_bytes", plan.arena_bytes},
          {"bytes_at_peak", at_peak},
          {"unused_bytes", plan.unused},
          {"highest_bytes", highest},
          {"peak_op", plan.peak_op},
          {"peak_op_text", plan.peak_op_text},
          {"flops", plan.flops},
          {"recompute_flops", plan.recompute_flops},
          {"ops", plan.ops}};
}

void print(const StepOptions& step, const DryRun& plan) {
  fmt::print("{}: {} parameters\n", step.model.name, with_commas(step.model.parameters()));
  fmt::print("step: {} x {} sequences, {} source + {} target tokens, {} ops, {:.3f} TFLOP",
             step.accumulate, step.batch.micro_batch, step.batch.source, step.batch.target,
             plan.ops, plan.flops * 1e-12);
  if (plan.recompute_flops > 0) fmt::print(" + {:.3f} recomputed", plan.recompute_flops * 1e-12);
  fmt::print("\n\n{:<12} {:>22} {:>14}   {:>14}\n", "memory", "bytes at the peak", "", "highest");
  for (int c = 0; c < kStorageCount; ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (plan.highest[i] == 0) continue;
    fmt::print("{:<12} {:>22} {:>14}   {:>14}\n", name_of(static_cast<Storage>(c)),
               with_commas(plan.at_peak[i]), human_bytes(static_cast<double>(plan.at_peak[i])),
               human_bytes(static_cast<double>(plan.highest[i])));
  }
  fmt::print("{:<12} {:>22} {:>14}\n", "unused", with_commas(plan.unused),
             human_bytes(static_cast<double>(plan.unused)));
  fmt::print("{:<12} {:>22} {:>14}\n\n", "total", with_commas(plan.arena_bytes),
             human_bytes(static_cast<double>(plan.arena_bytes)));
  fmt::print("peak at op #{}: {}\n", plan.peak_op, plan.peak_op_text);
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("plan", "predict the memory of a run, to the byte, without running it");
  auto options = std::make_shared<RunOptions>(*command);
  options->add_ranks(*command);
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "for programs");
  command->footer(
      "Example: quintet plan --model mt5-xl --micro-batch 8 --source 1024 --target 256 "
      "--precision bf16");
  command->callback([options, json, &action] {
    action = [options, json]() -> Status {
      QT_ASSIGN(const RunConfig config, options->load());
      QT_ASSIGN(const StepOptions step, step_options(config, options->ranks()));
      const DryRun plan = dry_run(compile_step(step));
      if (*json) {
        fmt::print("{}\n", to_json(step, plan).dump(2));
      } else {
        print(step, plan);
      }
      return {};
    };
  });
}

}  // namespace quintet
