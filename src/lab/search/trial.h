// A trial as the journal knows it: settings, on a model of the ladder, with what came of it at each
// rung; and which trials are better than which.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lab/search/sampler.h"

namespace quintet {

// A part of a trial: from the rung before to this one.
struct RungResult {
  std::int64_t job = 0;  // its number in the order of decisions
  std::int64_t rung = 0, steps = 0;
  std::string status;  // running, done, diverged, out_of_memory, impossible, failed
  std::string reason;  // of the last four
  double value = std::numeric_limits<double>::infinity();  // the objective; infinite without one
  double seconds = 0;                                      // of devices: ranks x time of steps
  std::int64_t finished = 0;                               // its number in the order of results
  std::string command;

  bool running() const { return status == "running"; }
};

struct Trial {
  std::int64_t id = 0, level = 0;  // of the ladder
  std::int64_t parent = 0;         // the same settings on the level before; 0: none
  Settings settings;
  std::vector<RungResult> rungs;  // in order, from the first on

  bool pending() const { return !rungs.empty() && rungs.back().running(); }
  // It could not be brought to a rung.
  bool failed() const { return !rungs.empty() && !pending() && !std::isfinite(rungs.back().value); }
  // The highest rung that it finished; -1: none, or it failed later.
  std::int64_t reached() const;
  double value_at(std::int64_t rung) const;  // infinite: not there, or not finished
};

// Trials of a level that finished a rung, the best first: who came further is better, at the same
// rung the value counts, then age. Those that failed are not among them.
std::vector<const Trial*> ranking(std::span<const Trial> trials, std::int64_t level);
// The best trial on the largest model that has one; nullptr: none has finished anything.
const Trial* best_trial(std::span<const Trial> trials);
// As a sampler sees the trials of a level.
std::vector<TriedSettings> observations_of(std::span<const Trial> trials, std::int64_t level);

}  // namespace quintet
