// Seconds on the machine's steady clock: for measuring, not for dates.
#pragma once

#include <chrono>

namespace quintet {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace quintet
