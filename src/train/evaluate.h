// What a trained model is worth: the figures of validation, from a checkpoint, under any layout.
#pragma once

#include <cstdint>

#include "base/files.h"
#include "parallel/communicator.h"
#include "train/run_config.h"
#include "train/validation.h"

namespace quintet {

// A checkpoint's folder, or that of a run, whose newest one is meant.
Result<Path> checkpoint_folder(const Path& given);

// The configuration a checkpoint was saved with, changed by assignments "section.key=value". The
// global batch is kept apart: the layout need not divide it.
struct EvaluationConfig {
  RunConfig run;
  std::int64_t sequences = 0;  // of validate.sequences, or batches
  bool mean = false;           // of the running mean of the weights (optimizer.ema)
};
Result<EvaluationConfig> evaluation_config(const Path& checkpoint,
                                           const std::vector<std::string>& assignments);

// Called by all ranks together, with the same configuration; all get the same. What asks a run to
// stop (run_signals.h) ends it between two batches, without a result.
Result<ValidationResult> evaluate(const Path& checkpoint, const EvaluationConfig& config,
                                  World& world);

}  // namespace quintet
