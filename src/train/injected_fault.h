// Faults on order, for trials of what a run does when something breaks (bench/faults, tests): the
// environment variable QUINTET_FAULT = "KIND RANK STEP" makes that rank fail at that step. Kinds:
// throw (an exception), memory (std::bad_alloc), hang (the main thread stops for ever), exit (the
// process ends without a word), kill (SIGKILL). "KIND RANK STEP FILE" does so once: where FILE is
// there already, nothing happens, else it is made.
#pragma once

#include <cstdint>

namespace quintet {

// Does nothing unless the variable is set and names this rank and step.
void inject_fault(std::int32_t rank, std::int64_t step);

}  // namespace quintet
