// The program as users meet it: run by a shell, with what it prints and its exit code.
#pragma once

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <sys/wait.h>

namespace quintet {

struct CommandOutcome {
  int exit_code = -1;
  std::string output;  // both streams

  bool says(const std::string& part) const { return output.find(part) != std::string::npos; }
};

inline CommandOutcome run_command(const std::string& command) {
  std::FILE* pipe = ::popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  CommandOutcome outcome;
  std::array<char, 4096> buffer{};
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.output.append(buffer.data(), got);
  }
  outcome.exit_code = WEXITSTATUS(::pclose(pipe));
  return outcome;
}

}  // namespace quintet
