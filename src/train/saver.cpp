#include "train/saver.h"

#include "base/log.h"

namespace quintet {
namespace {

bool saves(const OutputSection& output) {
  return output.checkpoints && !output.folder.empty();
}

}  // namespace

std::int64_t saving_bytes(const OutputSection& output, const StepOptions& options) {
  if (!saves(output)) return 0;
  return saving_bytes(
      checkpoint_layout(whole_weights(options.model),
                        stored_values(options.optimizer.name, options.optimizer.ema > 0)),
      options.grid.size(), output.background);
}

Result<Saver> Saver::create(const OutputSection& output, const T5Config& model,
                            const std::string& run_toml, const ModelState& state,
                            Executor& executor, World& world) {
  Saver saver;
  if (!saves(output)) return saver;
  SaveOptions options;
  options.run_folder = output.folder;
  options.retention = {output.keep, output.keep_every, output.keep_best};
  options.background = output.background;
  QT_ASSIGN(saver.writer_, CheckpointWriter::create(
                               state, executor, world, std::move(options),
                               {{"config.json", to_hf_config(model)}, {"run.toml", run_toml}}));
  saver.reports_ = world.rank() == 0;
  return saver;
}

// What ends the run at once is returned; the rest is said and remembered.
Status Saver::note(const Status& status) {
  if (status.ok() || status.error().code == ErrorCode::kNonFinite) return status;
  if (reports_) {
    log_warning(
        "A CHECKPOINT COULD NOT BE WRITTEN; training goes on, older checkpoints are as they "
        "were: {}",
        status.error().message);
  }
  ++failures_;
  if (!first_failure_) first_failure_ = status.error();
  return {};
}

Status Saver::after_step(const RunPosition& position, bool due, bool last) {
  if (!writer_) return {};
  QT_TRY(note(writer_->poll()));
  if (due) QT_TRY(note(writer_->save(position)));
  if (!last) return {};
  QT_TRY(note(writer_->finish()));
  if (failures_ == 0) return {};
  return Error{first_failure_->code,
               fmt::format("{} checkpoint{} of this run could not be written; the first: {}",
                           failures_, failures_ == 1 ? "" : "s", first_failure_->message)};
}

void Saver::complete() {
  if (writer_) static_cast<void>(note(writer_->finish()));
}

}  // namespace quintet
