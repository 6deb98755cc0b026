// Every layout of a model on so many ranks of a machine, at a fixed global batch: which are the
// fastest, which trade time for memory, and why the others lose.
//
// A layout is dropped without being simulated when it cannot matter: its states alone do not fit,
// or a bound below its time is above the time of as many layouts as were asked for. Both bounds
// come from what layouts share: parameters by stage, and the computation of one micro-batch by
// layer, compiled and timed once for each tensor-parallel size, micro-batch and recompute mode.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lab/simulate.h"

namespace quintet {

struct LayoutTime {
  StepOptions step;
  std::string name = {};  // "dp 4 (ZeRO 2) x tp 2, micro-batch 4 x 8, recompute selective"
  double bound = 0;       // seconds that its step takes at least
  double step_seconds = 0;
  StepAccount account = {};
  std::int64_t device_bytes = 0, host_bytes = 0;
  bool estimated = false;  // from two steps with fewer micro-batches
};

struct LayoutSearch {
  // At most as many as asked for, the fastest first; simulated whole if they are few.
  std::vector<LayoutTime> fastest;
  // Of all that were simulated and fit: faster than every one that takes less memory; the fastest
  // first. Without pruning, of all layouts.
  std::vector<LayoutTime> front;
  std::int64_t layouts = 0;    // that can be compiled
  std::int64_t too_large = 0;  // do not fit, by bound or simulated
  std::int64_t pruned = 0;     // cannot be among the fastest
  std::int64_t simulated = 0;
  std::int64_t global_batch = 0;
};

struct SearchOptions {
  std::int64_t keep = 5;
  std::int64_t nodes = 0;
  bool prune = true;
  // Called now and then with how many layouts are decided, of how many.
  std::function<void(std::int64_t, std::int64_t)> progress = {};
};

// `base` gives the model, the lengths, the precision, the optimizer and the global batch.
Result<LayoutSearch> best_layouts(const StepOptions& base, const Machine& machine,
                                  const SearchOptions& options);

// The time of one layout; of steps with many micro-batches from two with fewer, whose difference is
// what each further one adds.
Result<LayoutTime> estimate(const StepOptions& step, const Machine& machine,
                            std::int64_t nodes = 0);

// All layouts that can be compiled for these ranks, whether they fit or not.
std::vector<StepOptions> all_layouts(const StepOptions& base);

// Why `other` is slower than `best`: the part of the time breakdown that differs most, with its
// sign.
std::string why_slower(const LayoutTime& best, const LayoutTime& other);

}  // namespace quintet
