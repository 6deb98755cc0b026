// When a run saves, and what it does when saving fails: training goes on, the failure is said at
// the next step and is how the run ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "model/t5_config.h"
#include "train/checkpoint_writer.h"
#include "train/run_config.h"

namespace quintet {

// Host memory that saving takes on each rank of a run, at most; 0 where it saves nothing.
std::int64_t saving_bytes(const OutputSection& output, const StepOptions& options);

// All methods are called by all ranks together, and return the same on all of them.
class Saver {
 public:
  // Where the run saves nothing, neither does this.
  static Result<Saver> create(const OutputSection& output, const T5Config& model,
                              const std::string& run_toml, const ModelState& state,
                              Executor& executor, World& world);

  // After every step. Saves where that is due; with `last` waits until all is durable, and fails if
  // any checkpoint of the run could not be written. Weights that are not finite are an error at
  // once.
  Status after_step(const RunPosition& position, bool due, bool last);
  // Before a run ends for another reason: what is being written is completed.
  void complete();

 private:
  Saver() = default;
  Status note(const Status& status);

  std::unique_ptr<CheckpointWriter> writer_;  // null: saves nothing
  bool reports_ = false;
  std::int64_t failures_ = 0;
  std::optional<Error> first_failure_;
};

}  // namespace quintet
