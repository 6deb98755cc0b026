#include "train/evaluate.h"

#include "base/json.h"
#include "cli/commands.h"
#include "train/agreement.h"
#include "train/run_signals.h"

namespace quintet {
namespace {

struct EvaluateOptions {
  std::string checkpoint;
  std::vector<std::string> assignments;
  bool json = false, ema = false;
};

void print_evaluation(const std::string& checkpoint, const ValidationResult& result) {
  fmt::print("{}\n{:<24} {:>10} {:>14} {:>10} {:>12}\n", checkpoint, "", "loss", "bits per byte",
             "sequences", "tokens");
  const auto row = [](const std::string& name, const LossSum& sum) {
    const auto bits = sum.bits_per_byte();
    fmt::print("{:<24} {:>10.5f} {:>14} {:>10} {:>12}\n", name, sum.mean(),
               bits ? fmt::format("{:.5f}", *bits) : "-", sum.sequences, sum.tokens);
  };
  for (const auto& language : result.languages) row(language.name, language.sum);
  if (result.languages.size() > 1) row("total", result.total);
}

Status run_evaluate(const EvaluateOptions& options) {
  const RunSignals signals;
  QT_ASSIGN(const std::unique_ptr<World> world, join_world());
  const auto prepare = [&]() -> Result<std::pair<Path, EvaluationConfig>> {
    QT_ASSIGN(Path folder, checkpoint_folder(options.checkpoint));
    QT_ASSIGN(EvaluationConfig config, evaluation_config(folder, options.assignments));
    config.mean = options.ema;
    return std::pair(std::move(folder), std::move(config));
  };
  auto prepared = prepare();
  Result<RunConfig> agreed = agree_on_config(
      prepared.ok() ? Result<RunConfig>(prepared.value().second.run) : prepared.error(), *world);
  if (!agreed.ok()) return told_by_rank_0(agreed.error(), *world);
  const auto& [folder, config] = prepared.value();
  QT_ASSIGN(const ValidationResult result, evaluate(folder, config, *world));
  if (world->rank() != 0) return {};
  if (!options.json) {
    print_evaluation(folder.string(), result);
    return {};
  }
  Json json = result.to_json();
  json["checkpoint"] = folder.string();
  fmt::print("{}\n", to_text(json, 2));
  return {};
}

}  // namespace

void add_evaluate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "evaluate", "loss and bits per byte of a checkpoint on held-out text, by language");
  auto options = std::make_shared<EvaluateOptions>();
  command
      ->add_option("checkpoint", options->checkpoint,
                   "folder of a checkpoint, or of a run for its newest")
      ->required()
      ->type_name("DIR");
  const auto shortcut = [&](const char* flag, std::string key, const std::string& doc) {
    command
        ->add_option_function<std::string>(
            flag,
            [options, key](const std::string& value) {
              options->assignments.push_back(key + "=" + (value.empty() ? "\"\"" : value));
            },
            doc + "; sets " + key)
        ->type_name("VALUE");
  };
  shortcut("--corpus", "validate.corpus", "another corpus than the run's");
  shortcut("--split", "validate.split", "held_out or train");
  shortcut("--batches", "validate.batches", "how much text, in global batches of the run");
  shortcut("--micro-batch", "batch.micro_batch", "sequences computed at one time");
  shortcut("--precision", "train.precision", "fp32, bf16 or fp8");
  shortcut("--device", "train.device", "cpu or cuda");
  shortcut("--threads", "train.threads", "CPU threads (0: one a core)");
  shortcut("--tp", "parallel.tp", "tensor-parallel ranks");
  shortcut("--pp", "parallel.pp", "pipeline stages");
  shortcut("--zero", "parallel.zero", "ZeRO stage, 0 to 3");
  shortcut("--schedule", "parallel.schedule", "1f1b or interleaved");
  shortcut("--interleave", "parallel.interleave", "pieces of the model on each stage");
  command
      ->add_option_function<std::vector<std::string>>(
          "--set",
          [options](const std::vector<std::string>& all) {
            options->assignments.insert(options->assignments.end(), all.begin(), all.end());
          },
          "set one key of the run's configuration (repeatable)")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--ema", options->ema, "of the running mean of the weights (optimizer.ema)");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Example: quintet evaluate runs/first\n"
      "On 2 ranks: quintet launch -n 2 -- evaluate runs/first --tp 2 --json");
  command->callback([options, &action] { action = [options] { return run_evaluate(*options); }; });
}

}  // namespace quintet
