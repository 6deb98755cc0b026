// Times ops of a probe as they run inside a step: back to back in batches of some milliseconds, the
// batches of different ops in random order; the median over rounds counts. A GPU's clock follows
// the power drawn over the last moments, so there batches also come as often as a step's mix asks
// for: what a step spends its time on is most of what runs between any two batches.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "lab/op_table.h"
#include "lab/probe.h"

namespace quintet {

struct TimedOp {
  std::vector<OpId> copies;  // of a probe
  double share = 1;          // of the work that it is among: more of it, longer batches
  OpSeconds seconds;         // the result
};

// `cache_bytes`: ops whose operands are larger are not timed with operands in the cache.
// `near_bytes`: of a smaller cache before that one, in which an op of a step finds nothing.
Status time_ops(Probe& probe, std::vector<TimedOp>& ops, double cache_bytes, double near_bytes = 0);

// The median seconds of a batch, of several rounds.
Result<double> time_batch(Probe& probe, const std::vector<OpId>& batch);

}  // namespace quintet
