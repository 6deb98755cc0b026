#include "train/export.h"

#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"

namespace quintet {
namespace {

struct ExportCommand {
  ExportOptions options;
  std::string checkpoint, output, tokenizer, shard_size = "5GB";
  bool json = false;
};

Status export_checkpoint(ExportCommand& command) {
  if (command.output.empty())
    return usage_error("export: the name of the folder to make is empty; give one");
  ExportOptions& options = command.options;
  options.checkpoint = command.checkpoint;
  options.output = command.output;
  options.tokenizer = command.tokenizer;
  QT_ASSIGN(options.shard_bytes, parse_size(command.shard_size));
  const bool shows = ::isatty(STDERR_FILENO) == 1;
  const auto progress = [&](std::int64_t done, std::int64_t all) {
    if (shows) {
      fmt::print(stderr, "\r{}: {:3.0f} %", command.output,
                 100 * static_cast<double>(done) / static_cast<double>(all));
    }
  };
  auto result = export_model(options, local_files(), progress);
  if (shows) fmt::print(stderr, "\r{:60}\r", "");
  QT_ASSIGN(const ExportReport report, std::move(result));
  if (command.json) {
    const Json json = {{"checkpoint", report.checkpoint.string()},
                       {"step", report.step},
                       {"folder", command.output},
                       {"dtype", options.dtype},
                       {"parameters", report.parameters},
                       {"bytes", report.bytes},
                       {"weight_files", report.weight_files},
                       {"tokenizer", report.tokenizer ? report.tokenizer->string() : ""}};
    fmt::print("{}\n", to_text(json, 2));
  } else {
    fmt::print("{}: step {}, {} parameters in {}, {} file{}, {}\n", command.output, report.step,
               human_count(static_cast<double>(report.parameters)), options.dtype,
               report.weight_files.size(), report.weight_files.size() == 1 ? "" : "s",
               human_bytes(static_cast<double>(report.bytes)));
  }
  if (!report.tokenizer) {
    log_warning("no tokenizer was written: {}; --tokenizer FILE adds one", report.why_no_tokenizer);
  }
  return {};
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "export", "write a checkpoint as a model's folder for Hugging Face's transformers");
  auto options = std::make_shared<ExportCommand>();
  command
      ->add_option("checkpoint", options->checkpoint,
                   "folder of a checkpoint, or of a run: its newest")
      ->type_name("CHECKPOINT")
      ->required();
  command->add_option("output", options->output, "folder to make; must not exist")
      ->type_name("OUT")
      ->required();
  command->add_option("--dtype", options->options.dtype, "of the weights: fp32, bf16 or fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  command->add_option("--shard-size", options->shard_size, "most bytes per file of weights")
      ->type_name("SIZE")
      ->capture_default_str();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "SentencePiece model, or a folder with one; default: that of the run's data")
      ->type_name("PATH");
  command->add_flag("--ema", options->options.ema,
                    "the running mean of the weights (optimizer.ema) instead of the weights");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Example: quintet export runs/first exported --dtype bf16\n"
      "Then: quintet train --set model.weights=exported\n"
      "and in Python: MT5ForConditionalGeneration.from_pretrained(\"exported\")");
  command->callback(
      [options, &action] { action = [options] { return export_checkpoint(*options); }; });
}

}  // namespace quintet
