// A run's output folder: one run at a time, and a run that is continued is the run that was begun.
#pragma once

#include "base/files.h"
#include "base/result.h"
#include "train/run_config.h"

namespace quintet {

// Held by rank 0 as long as it trains into a folder; the system lets go of it when the process
// ends, however it ends. Where the file system has no locks (some network ones), the name of the
// process in the file has to do: on this machine a dead one is recognised, on others it is not.
class RunLock {
 public:
  static Result<RunLock> take(const Path& folder);
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  RunLock(Path path, int descriptor, bool remove);
  Path path_;
  int descriptor_ = -1;
  bool remove_ = false;  // when done: the file itself is the lock
};

// The configuration as a checkpoint keeps it: with its global batch, which the number of ranks is
// part of.
std::string config_to_keep(RunConfig config, const StepOptions& options);

// Refuses to continue a run under settings that make it another one (seed, data, lengths,
// optimizer, ...), and names them; output.resume_changed leaves it to the checkpoint whether its
// weights and optimizer state fit. How long, on what and how it is spread may change. Reads the
// configuration in the newest checkpoint that has one.
Status check_resumed_config(const RunConfig& config, const StepOptions& options);

}  // namespace quintet
