// Checkpoints: a folder for each saved step, complete or not there (docs/formats.md,
// "Checkpoints"). Finding and loading them is here; checkpoint_writer.h saves them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/tensor_files.h"
#include "train/checkpoint_manifest.h"
#include "train/model_state.h"
#include "train/noise_scale.h"
#include "train/sample_order.h"
#include "train/spikes.h"

namespace quintet {

struct CheckpointInfo {
  Path folder;
  std::int64_t step = 0;
};

// How far a run has come.
struct RunPosition {
  std::int64_t step = 0;     // finished steps
  std::int64_t samples = 0;  // the number of the next sample
  // The loss on held-out data at this step, if it was measured.
  std::optional<double> validation = std::nullopt;
  // The lowest so far, the step it was measured at, and how many validations there were since.
  std::optional<double> best_validation = std::nullopt;
  std::int64_t best_step = 0, validations_since_best = 0;
  RecentSteps recent = {};                   // where spikes are looked for (spikes.h)
  NoiseAverages noise = {};                  // of the gradient, where it is measured
  std::int64_t spikes = 0;                   // that were skipped or rewound so far
  std::vector<SkippedSamples> skipped = {};  // the latest last
};

Path checkpoints_folder(const Path& run_folder);
// Folders with the names of checkpoints below a run's folder, oldest first, sound or not.
std::vector<CheckpointInfo> list_checkpoints(const Path& run_folder);
// The newest of them whose descriptions are sound; its tensors are not looked at.
std::optional<CheckpointInfo> newest_checkpoint(const Path& run_folder);
// Where the checkpoint of a step lies.
CheckpointInfo checkpoint_at(const Path& run_folder, std::int64_t step);
// Where one lies that is not yet, or no longer, a checkpoint: "partial", "removed", "damaged".
Path set_aside_path(const Path& run_folder, const std::string& why, std::int64_t step);

Result<RunPosition> position_of(const CheckpointInfo& checkpoint);
std::string position_to_text(const RunPosition& position);

// A checkpoint open for reading.
class Checkpoint {
 public:
  // Checks everything but the tensors' values: the manifest, all files' sizes, the small ones'
  // contents, the headers. Those of older versions have no manifest and no checksums.
  static Result<Checkpoint> open(const CheckpointInfo& info);
  // A folder that is a checkpoint, whatever its name; the step is what it says itself.
  static Result<Checkpoint> open(const Path& folder);

  CheckpointInfo info;
  RunPosition position;
  std::optional<CheckpointManifest> manifest;
  TensorFiles weights, optimizer;

  // From now on `weights` are the running mean of the weights, where the run kept one
  // (optimizer.ema), and `optimizer` is empty.
  Status use_mean();

  // Whether it is one of this model and this optimizer.
  Status fits(const ModelState& state) const;
  // Puts weights and optimizer state back, reading only what this rank has of them and comparing
  // checksums. After a failure the state is undefined.
  Status load_into(ModelState& state);
  // Reads everything. `progress` hears how many bytes were read.
  Status verify(const std::function<void(std::int64_t)>& progress = {});

 private:
  Checkpoint(CheckpointInfo info, TensorFiles weights, TensorFiles optimizer);
};

// Loads the newest checkpoint of a run that is whole. Where a newer one is damaged, says so loudly,
// sets it aside as `damaged-...`, and takes the one before. Nothing where the run has none; an
// error where none of those it has can be used, or where the newest whole one is of another model
// or optimizer. Called by all ranks together; all get the same.
Result<std::optional<CheckpointInfo>> load_newest(const Path& run_folder, World& world,
                                                  ModelState& state, RunPosition& position);

}  // namespace quintet
