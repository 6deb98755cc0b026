// Training runs told on one page: one run, or several side by side.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

// The page of the runs in these folders (metrics.jsonl, and summary.json once a run has ended).
Result<std::string> run_report(const std::vector<Path>& folders);

}  // namespace quintet
