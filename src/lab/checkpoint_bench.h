// What saving a checkpoint costs: how long training stands still, and how fast the files are
// written, against a plain writer on the same disk in the same run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "train/step_program.h"

namespace quintet {

struct CheckpointBench {
  std::int64_t bytes = 0;         // of a checkpoint
  std::int64_t memory_bytes = 0;  // host memory for the copy
  double step_seconds = 0;        // median, nothing else going on
  // One of each a repetition.
  std::vector<double> plain_seconds;    // one thread, large writes to one file, flushed
  std::vector<double> waiting_seconds;  // a save that training waits for
  std::vector<double> still_seconds;    // a save beside training: until training goes on
  std::vector<double> durable_seconds;  // and until it is durable
  std::vector<double> beside_seconds;   // mean step meanwhile
};

// Saves below `folder`, which is left as it was.
Result<CheckpointBench> bench_checkpoint(const StepOptions& options, const Path& folder,
                                         int repetitions);

}  // namespace quintet
