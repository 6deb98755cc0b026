// Time lines of steps in the format of Chrome's and Perfetto's trace viewers: a process for each
// rank, a thread for each of its streams.
#pragma once

#include <string>

#include "program/program.h"
#include "runtime/executor.h"

namespace quintet {

// "attention decoder.3": what an op is called in time lines and messages.
std::string op_title(const Program& program, OpId id);

// The events of the executor's last run, as JSON objects with a comma after each. `origin`: the
// moment on this rank's steady clock that the trace counts from. `data_wait`: seconds before the
// run.
std::string trace_events(const Executor& executor, std::int64_t step, double origin,
                         double data_wait);

// The names of a rank's process and threads, likewise.
std::string trace_names(const Program& program);

// A whole file from the events of all ranks.
std::string trace_file(const std::string& events);

}  // namespace quintet
