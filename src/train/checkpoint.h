// Checkpoints: a folder for each saved step, complete or not there (docs/formats.md,
// "Checkpoints").
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files.h"
#include "base/result.h"
#include "model/t5_config.h"
#include "train/model_state.h"

namespace quintet {

struct CheckpointInfo {
  Path folder;
  std::int64_t step = 0;
};

// How far a run has come.
struct RunPosition {
  std::int64_t step = 0;     // finished steps
  std::int64_t samples = 0;  // the number of the next sample
};

// The newest complete checkpoint below a run's folder.
std::optional<CheckpointInfo> newest_checkpoint(const Path& run_folder);

// The checkpoint of a step, which must be there.
CheckpointInfo checkpoint_at(const Path& run_folder, std::int64_t step);
Result<RunPosition> position_of(const CheckpointInfo& checkpoint);

// Writes one beside its final place and renames it, then removes all but the newest `keep` (0:
// keeps all). Called by all ranks together; rank 0 writes.
Status save_checkpoint(const Path& run_folder, const RunPosition& position, const World& world,
                       const ModelState& state, const T5Config& model, const std::string& run_toml,
                       std::int64_t keep);

// Puts weights and optimizer state back. Refuses checkpoints of another model or optimizer.
Status load_checkpoint(const CheckpointInfo& checkpoint, ModelState& state);

}  // namespace quintet
