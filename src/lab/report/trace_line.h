// The time line of one rank's step, from a trace that `quintet train --trace` or a simulation
// wrote.
#pragma once

#include "base/files.h"
#include "lab/plot/chart.h"

namespace quintet {

// The first trace in a folder or below it, by name; none if there is none.
std::optional<Path> find_trace(const Path& folder);

// The first rank's first step in the file.
Result<TimeLine> read_time_line(const Path& trace);
Result<TimeLine> parse_time_line(const std::string& text, const std::string& origin);

}  // namespace quintet
