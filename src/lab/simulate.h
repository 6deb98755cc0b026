// The time of a step nobody has run: the programs of all distinct ranks, played against each other
// (program/play.h) on a machine described by a file (lab/machine.h). docs/foresight.md says what is
// modelled and what is left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/machine.h"
#include "lab/placement.h"
#include "runtime/accounting.h"
#include "train/run_config.h"
#include "train/step_program.h"

namespace quintet {

// One rank that was played, and those it stands for.
struct SimulatedRank {
  std::int32_t rank = 0, stage = 0, stands_for = 1;
  StepAccount account = {};
  std::vector<OpTiming> timings = {};  // by op of `program`
  std::shared_ptr<const Program> program = {};
};

struct Simulation {
  double step_seconds = 0;
  StepAccount account;  // mean over all ranks
  std::vector<SimulatedRank> ranks;
  Provenance provenance;         // of all op times, over all ranks
  double tokens = 0, flops = 0;  // per step, over all ranks; flops without recomputation
  std::int64_t world = 1;
  // Of the rank that takes most: what the arena and the runtime take of its device, and of the
  // host's memory.
  std::int64_t device_bytes = 0, host_bytes = 0;

  double tokens_per_second() const { return tokens / step_seconds; }
  double flops_per_device() const { return flops / step_seconds / static_cast<double>(world); }
  double device_hours_per_billion_tokens() const {
    return 1e9 / tokens_per_second() * static_cast<double>(world) / 3600;
  }
};

// Makes a configuration one for this machine: its device, and the threads its ops were measured
// with. Refused where the configuration asks for others.
Status adapt_to(const Machine& machine, RunConfig& config);

// `nodes`: 0 for as many as the machine file says, or the ranks need.
Result<Simulation> simulate(const StepOptions& options, const Machine& machine,
                            std::int64_t nodes = 0, Fold fold = Fold::kDataAndTensor);

// Whether it fits: each rank on its device, all ranks of a node in the host's memory.
bool fits(std::int64_t device_bytes, std::int64_t host_bytes, const Machine& machine,
          std::int32_t ranks_per_node);

// The time line of all ranks that were played (runtime/trace.h).
std::string trace_of(const Simulation& simulation, const Backend& backend);

}  // namespace quintet
