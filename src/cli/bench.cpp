#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "lab/step_bench.h"
#include "runtime/cpu/blas_kernels.h"

namespace quintet {
namespace {

void print(const StepOptions& step, const StepBench& b) {
  const double achieved = b.flops / b.seconds;
  const bool device = step.target.device == Device::kCuda;
  fmt::print("{}: {} x {} sequences of {} + {} tokens, {}, {}\n", step.model.name, step.accumulate,
             step.batch.micro_batch, step.batch.source, step.batch.target,
             step.options.fp8                     ? "fp8"
             : step.options.dtype == DType::kBF16 ? "bf16"
                                                  : "fp32",
             device ? "on the GPU"
                    : fmt::format("{} thread{}, {}", step.target.threads,
                                  step.target.threads == 1 ? "" : "s", blas_kernels_text()));
  fmt::print("step {:.2f} ms (fastest {:.2f}), {:.0f} tok/s, {}\n", b.seconds * 1e3,
             b.fastest * 1e3, b.tokens / b.seconds, memory_text(b.plan));
  fmt::print(
      "{:.1f} GFLOP/s achieved, {:.1f} the ceiling (products of the step's own shapes): {:.1f} %\n",
      achieved * 1e-9, b.ceiling_flops * 1e-9, 100 * achieved / b.ceiling_flops);
  if (device) {
    fmt::print(
        "{:.1f} GFLOP/s the best square product; device memory {} predicted, {} in use: {:+.2f} "
        "%\n",
        b.square_flops * 1e-9, human_bytes(static_cast<double>(b.predicted_bytes)),
        human_bytes(static_cast<double>(b.measured_bytes)),
        100 * (static_cast<double>(b.predicted_bytes) / static_cast<double>(b.measured_bytes) - 1));
  }
  fmt::print("\n");
  double total = 0;
  for (const KindCost& k : b.kinds) total += k.seconds;
  fmt::print("{:<22} {:>5} {:>9} {:>7} {:>9} {:>8} {:>12}\n", "op kind", "ops", "ms", "share",
             "GFLOP/s", "GB/s", "floor/time");
  for (const KindCost& k : b.kinds) {
    // The floor of an op kind: its products at the ceiling or its bytes at the copy rate, whichever
    // takes longer.
    const double floor = std::max(k.flops / b.ceiling_flops, k.bytes / b.copy_bytes);
    fmt::print("{:<22} {:>5} {:>9.3f} {:>6.1f}% {:>9} {:>8.1f} {:>11.0f}%\n", k.kind, k.ops,
               k.seconds * 1e3, 100 * k.seconds / total,
               k.flops > 0 ? fmt::format("{:.1f}", k.flops / k.seconds * 1e-9) : "-",
               k.bytes / k.seconds * 1e-9, 100 * floor / k.seconds);
  }
  fmt::print(
      "\nfloor/time: the least time that a kind's products at the ceiling's rate or its bytes at a "
      "copy's\ncould take, beside what it takes.\nOf the {:.2f} ms that ops take, {:.2f} are "
      "products at the ceiling's rate. A large copy "
      "moves {:.1f} "
      "GB/s.\n",
      total * 1e3, b.product_seconds * 1e3, b.copy_bytes * 1e-9);
}

Json to_json(const StepOptions& step, const StepBench& b) {
  Json kinds = Json::array();
  for (const KindCost& k : b.kinds) {
    kinds.push_back({{"kind", k.kind},
                     {"ops", k.ops},
                     {"seconds", k.seconds},
                     {"flops", k.flops},
                     {"bytes", k.bytes}});
  }
  return {{"model", step.model.name},
          {"seconds", b.seconds},
          {"fastest_seconds", b.fastest},
          {"tokens_per_second", b.tokens / b.seconds},
          {"flops_per_second", b.flops / b.seconds},
          {"ceiling_flops_per_second", b.ceiling_flops},
          {"share_of_ceiling", b.flops / b.seconds / b.ceiling_flops},
          {"copy_bytes_per_second", b.copy_bytes},
          {"arena_bytes", b.plan.arena_bytes},
          {"host_bytes", b.plan.host_bytes},
          {"predicted_bytes", b.predicted_bytes},
          {"measured_bytes", b.measured_bytes},
          {"square_flops_per_second", b.square_flops},
          {"kinds", kinds}};
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench =
      app.add_subcommand("bench", "measure, against ceilings measured in the same run");
  bench->require_subcommand(1);
  add_bench_checkpoint(*bench, action);
  add_bench_foresight(*bench, action);
  CLI::App* command =
      bench->add_subcommand("step", "one training step: time by kind of op, share of the ceiling");
  auto options = std::make_shared<RunOptions>(*command);
  auto repetitions = std::make_shared<int>(20);
  auto json = std::make_shared<bool>(false);
  command->add_option("--repeat", *repetitions, "steps to time")->check(CLI::Range(1, 100000));
  command->add_flag("--json", *json, "print JSON");
  command->footer(
      "Example: quintet bench step --model tiny --micro-batch 8 --source 128 --target 32");
  command->callback([options, repetitions, json, &action] {
    action = [options, repetitions, json]() -> Status {
      QT_ASSIGN(const RunConfig config, options->load());
      QT_ASSIGN(const StepOptions step, step_options(config, 1));
      QT_ASSIGN(const StepBench result, bench_step(step, *repetitions));
      if (*json) {
        fmt::print("{}\n", to_text(to_json(step, result), 2));
      } else {
        print(step, result);
      }
      return {};
    };
  });
}

}  // namespace quintet
