// Ctrl-C (SIGINT), SIGTERM and SIGHUP as a flag, for commands that save what they have done.
#pragma once

#include <atomic>

namespace quintet {

// From the first call on, the signals set the flag instead of ending the process; a second one ends
// it.
const std::atomic<bool>& interrupt_flag();

}  // namespace quintet
