#include "cli/run_options.h"

namespace quintet {

RunOptions::RunOptions(CLI::App& command) {
  command.add_option("config", file_, "TOML file with the run's configuration")->type_name("FILE");
  command.add_option("--set", assignments_, "set one key, e.g. --set train.steps=500 (repeatable)")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  shortcut(command, "--model", "model.name", "preset, config.json, or folder with one");
  shortcut(command, "--micro-batch", "batch.micro_batch", "sequences computed at one time");
  shortcut(command, "--accumulate", "batch.accumulate", "micro-batches per step");
  shortcut(command, "--source", "batch.source", "tokens of the encoder's input");
  shortcut(command, "--target", "batch.target", "tokens of the decoder (0: from the objective)");
  shortcut(command, "--precision", "train.precision", "fp32, bf16 or fp8");
  shortcut(command, "--recompute", "train.recompute", "none, selective or full");
  shortcut(command, "--optimizer", "optimizer.name", "adamw or adafactor");
  shortcut(command, "--offload", "optimizer.offload", "share of its state kept in host memory");
  shortcut(command, "--tp", "parallel.tp", "tensor-parallel ranks");
  shortcut(command, "--pp", "parallel.pp", "pipeline stages");
  shortcut(command, "--zero", "parallel.zero", "ZeRO stage, 0 to 3");
  shortcut(command, "--schedule", "parallel.schedule", "1f1b or interleaved");
  shortcut(command, "--interleave", "parallel.interleave", "pieces of the model on each stage");
  shortcut(command, "--trace", "output.trace", "file for a time line of all ranks");
  shortcut(command, "--device", "train.device", "cpu or cuda");
  shortcut(command, "--threads", "train.threads", "CPU threads (0: one per core)");
}

void RunOptions::add_ranks(CLI::App& command) {
  command.add_option("--ranks", ranks_, "ranks the run would have")->check(CLI::Range(1, 1 << 20));
}

void RunOptions::shortcut(CLI::App& command, const std::string& flag, const std::string& key,
                          const std::string& doc) {
  auto value = std::make_unique<std::string>();
  const CLI::Option* option =
      command.add_option(flag, *value, doc + "; sets " + key)->type_name("VALUE");
  shortcuts_.push_back({key, std::move(value), option});
}

Result<RunConfig> RunOptions::load(const std::vector<std::string>& more) const {
  std::vector<std::string> all;
  for (const Shortcut& shortcut : shortcuts_) {
    // An empty value is one, too, and mostly a variable of a script that was not set.
    if (shortcut.option->count() > 0)
      all.push_back(shortcut.key + "=" + (shortcut.value->empty() ? "\"\"" : *shortcut.value));
  }
  all.insert(all.end(), assignments_.begin(), assignments_.end());
  all.insert(all.end(), more.begin(), more.end());
  return load_run_config(file_, all);
}

}  // namespace quintet
