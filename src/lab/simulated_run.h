// One simulated row of a study: `quintet plan --machine`, in a process of its own.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "lab/study_store.h"

namespace quintet {

// The command. A machine file with the run's nodes, ranks per node and bandwidth is put into
// `folder` where they are not the machine's own.
Result<std::vector<std::string>> simulation_line(const CellRun& run, const Path& folder);
// The same as a person would type it.
std::string simulation_text(const CellRun& run);
// What it says; a layout that does not fit the machine's memory is an error, kOutOfMemory.
Result<RowResult> run_simulation(const std::vector<std::string>& line);

}  // namespace quintet
