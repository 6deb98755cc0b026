// One simulated row of a study: `quintet plan --machine`, in a process of its own.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/files.h"
#include "lab/study_store.h"

namespace quintet {

struct SimulationCommand {
  std::vector<std::string> line;
  double memory_bytes = 0, host_bytes = 0;  // that a rank may take; 0: not known
};
// The command. A machine file with the run's ranks per node and bandwidth is put into `folder`
// where they are not the machine's own.
Result<SimulationCommand> simulation_command(const CellRun& run, const Path& folder);
// The same as a person would type it.
std::string simulation_text(const CellRun& run);
// What it says; a layout that does not fit the machine's memory is an error, kOutOfMemory.
Result<RowResult> run_simulation(const SimulationCommand& command, double timeout,
                                 const std::atomic<bool>* interrupted);

}  // namespace quintet
