// Whether the ranks that share a machine, or a cgroup on it, fit into its memory together: each of
// them alone may.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "runtime/host_memory.h"

namespace quintet {

struct HostNeed {
  std::string host, machine;          // as in parallel/hosts.h
  HostMemory memory;                  // before anything was allocated
  std::int64_t step = 0, saving = 0;  // bytes of host memory that a rank plans
};

// What does not fit, naming host, ranks, sum and limit; empty where all does. `needs` by rank.
std::string host_shortage(const std::vector<HostNeed>& needs);

// Compares what all ranks plan. The same on all of them; called by all together.
Status fits_on_hosts(std::int64_t step, std::int64_t saving, World& world);

}  // namespace quintet
