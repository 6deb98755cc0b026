// Runs the quintet program the way users do, and looks at what it said and how it ended.
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <sys/wait.h>

namespace quintet::testing {

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams

  bool says(const std::string& part) const { return output.find(part) != std::string::npos; }
};

inline Outcome run_shell(const std::string& command) {
  std::FILE* pipe = ::popen(("{ " + command + "; } 2>&1").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

inline Outcome quintet(const std::string& arguments) {
  return run_shell(std::string(QUINTET_BINARY) + " " + arguments);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace quintet::testing
