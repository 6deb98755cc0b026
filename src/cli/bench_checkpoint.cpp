#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "lab/checkpoint_bench.h"

namespace quintet {
namespace {

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_saving(const StepOptions& step, const CheckpointBench& b) {
  const auto bytes = static_cast<double>(b.bytes);
  fmt::print("{}: a checkpoint of {} ({} of host memory for the copy), step {:.1f} ms\n\n",
             step.model.name, human_bytes(bytes), human_bytes(static_cast<double>(b.memory_bytes)),
             b.step_seconds * 1e3);
  fmt::print("{:<44} {:>10} {:>10}   all\n", "", "seconds", "GB/s");
  const auto row = [&](const char* what, const std::vector<double>& seconds, bool rate) {
    std::vector<std::string> all;
    for (const double s : seconds) all.push_back(fmt::format("{:.3f}", s));
    fmt::print("{:<44} {:>10.3f} {:>10}   {}\n", what, middle(seconds),
               rate ? fmt::format("{:.3f}", bytes * 1e-9 / middle(seconds)) : "", join(all, " "));
  };
  row("plain writer: one thread, one file, flushed", b.plain_seconds, true);
  row("save that training waits for", b.waiting_seconds, true);
  row("save beside training: training waits", b.still_seconds, false);
  row("save beside training: until durable", b.durable_seconds, true);
  row("one step meanwhile", b.beside_seconds, false);
  fmt::print(
      "\nA save beside training stops it for {:.2f} % of the time of one that it waits for; the "
      "files are written at "
      "{:.0f} % of the plain writer's rate.\n",
      100 * middle(b.still_seconds) / middle(b.waiting_seconds),
      100 * middle(b.plain_seconds) / middle(b.durable_seconds));
}

Json saving_json(const StepOptions& step, const CheckpointBench& b) {
  return {{"model", step.model.name},
          {"bytes", b.bytes},
          {"memory_bytes", b.memory_bytes},
          {"step_seconds", b.step_seconds},
          {"plain_seconds", b.plain_seconds},
          {"waiting_seconds", b.waiting_seconds},
          {"still_seconds", b.still_seconds},
          {"durable_seconds", b.durable_seconds},
          {"step_seconds_beside", b.beside_seconds},
          {"still_share", middle(b.still_seconds) / middle(b.waiting_seconds)},
          {"rate_share", middle(b.plain_seconds) / middle(b.durable_seconds)}};
}

}  // namespace

void add_bench_checkpoint(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand(
      "checkpoint", "saving: how long training waits, how fast files are written");
  auto options = std::make_shared<RunOptions>(*command);
  auto folder = std::make_shared<std::string>(".");
  auto repetitions = std::make_shared<int>(3);
  auto json = std::make_shared<bool>(false);
  command->add_option("--folder", *folder, "where to write; it needs room for two checkpoints")
      ->capture_default_str();
  command->add_option("--repeat", *repetitions, "saves of each kind")->check(CLI::Range(1, 1000));
  command->add_flag("--json", *json, "print JSON");
  command->footer(
      "Example: quintet bench checkpoint --model mt5-base --precision bf16 --device cuda "
      "--micro-batch 8 --source 512 --target 128 --folder /data");
  command->callback([options, folder, repetitions, json, &action] {
    action = [options, folder, repetitions, json]() -> Status {
      QT_ASSIGN(const RunConfig config, options->load());
      QT_ASSIGN(const StepOptions step, step_options(config, 1));
      QT_ASSIGN(const CheckpointBench result, bench_checkpoint(step, *folder, *repetitions));
      if (*json) {
        fmt::print("{}\n", to_text(saving_json(step, result), 2));
      } else {
        print_saving(step, result);
      }
      return {};
    };
  });
}

}  // namespace quintet
