// Time lines of steps in the format of Chrome's and Perfetto's trace viewers: a process for each
// rank, a thread for each of its streams.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "program/backend.h"
#include "runtime/op_timing.h"

namespace quintet {

// "attention decoder.3": what an op is called in time lines and messages.
std::string op_title(const Program& program, OpId id);

// The events of one step, measured or simulated, as JSON objects with a comma after each.
// `timings` by op; `began`: when the step began, in seconds of the trace's clock; `data_wait`:
// seconds before that.
std::string trace_events(const Program& program, const Backend& backend,
                         std::span<const OpTiming> timings, std::int64_t step, double began,
                         double data_wait);

// The names of a rank's process and threads, likewise.
std::string trace_names(const Program& program);

// A whole file from the events of all ranks.
std::string trace_file(const std::string& events);

}  // namespace quintet
