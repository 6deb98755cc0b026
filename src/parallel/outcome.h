// How a run ended, for whoever started it through a launcher (`quintet launch`): mpirun's exit code
// alone does not tell which rank's end came first. The starter leaves an empty file and names it in
// the environment; a rank that says why the run ends says it there, too.
#pragma once

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/result.h"

namespace quintet {

inline constexpr const char* kOutcomeVariable = "QUINTET_OUTCOME";

// Where there is no such file (another host, another starter) nothing happens. The first to say
// something is heard.
inline void leave_outcome(const Error& error) {
  const char* path = std::getenv(kOutcomeVariable);
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  if (::lseek(file, 0, SEEK_END) != 0) {
    ::close(file);
    return;
  }
  const std::string text = fmt::format("{}\n{}\n", static_cast<int>(error.code), error.message);
  static_cast<void>(!::write(file, text.data(), text.size()));
  ::close(file);
}

}  // namespace quintet
