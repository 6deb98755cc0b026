// A run from its configuration to its last checkpoint.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "parallel/communicator.h"
#include "train/ledger.h"
#include "train/run_config.h"

namespace quintet {

struct TrainResult {
  std::int64_t steps = 0;
  double final_loss = 0;     // mean over the last tenth of the run, which smooths single batches
  double optimal_loss = 0;   // what no model can beat on this data; 0: not known
  RunSummary summary;        // rank 0 only
  bool was_done = false;     // resumed at its last step: nothing was trained
  bool ended_early = false;  // validate.patience: the loss on other text got no better
};

// Trains until the last step, a signal or the end of its time (which end the step at hand, save,
// and return kInterrupted; run_signals.h), or a loss that is no number (kNonFinite; weights and
// checkpoints stay those of the last good step).
//
// Called by all ranks of the world together, with the same configuration (agreement.h); rank 0
// reports and writes files. What goes wrong on any of several ranks ends all their processes
// (watchdog.h) instead of returning.
Result<TrainResult> train(RunConfig config, World& world);

}  // namespace quintet
