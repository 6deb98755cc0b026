// One training run in processes of its own, measured: what a study's rows and a sweep's are made
// of.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/ledger.h"
#include "train/run_config.h"

namespace quintet {

// Where a run's ranks are.
struct RunPlace {
  std::int64_t nodes = 1, ranks_per_node = 1;
  std::string kind = "local";      // local, emulated, hosts, slurm
  std::string cluster;             // emulated: its name
  std::vector<std::string> hosts;  // hosts: a name for each node
  std::int64_t ranks() const { return nodes * ranks_per_node; }
};

struct MeasuredRun {
  RunSummary summary;
  std::vector<double> seconds, losses;  // by step, from the first on
  double tokens = 0;                    // of a step
};

// What the configuration sets, as arguments: "train", "--set", "parallel.zero=1", ...
std::vector<std::string> train_arguments(RunConfig config);
// The command that runs it there.
Result<std::vector<std::string>> command_line(const RunPlace& place, const RunConfig& config);
// The same as a person would type it, from nothing.
std::string command_text(const RunPlace& place, const RunConfig& config, double bandwidth);

struct RunLimits {
  double timeout = 0;                              // seconds; 0: none
  const std::atomic<bool>* interrupted = nullptr;  // ends it
  std::string mark;                                // for end_marked() (tool.h)
};

// What came of it. `exit` is the exit status; an error says why there is no result, kInterrupted if
// it was told to stop.
struct RunOutcome {
  int exit = 0;
  Result<MeasuredRun> run;
};
// Runs it with files in `folder`: run.toml's settings on the command line, log.txt, metrics,
// summary.
RunOutcome run_measured(const RunPlace& place, RunConfig config, const std::string& folder,
                        const RunLimits& limits);

}  // namespace quintet
