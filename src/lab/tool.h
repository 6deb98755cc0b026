// Runs another program to its end and hands back what it printed: for the system's tools (ip, tc)
// and for this program's own subcommands.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

// What the command wrote to standard output. An error where it cannot be started or does not end
// well: its code (kIo for other programs than ours) and the last line of its standard error. After
// `timeout` seconds (0: never), or when interrupted, it is killed.
Result<std::string> output_of(const std::vector<std::string>& line, double timeout = 0,
                              const std::atomic<bool>* interrupted = nullptr);

struct Supervision {
  std::string log;                                 // a file for all it prints
  double timeout = 0;                              // seconds; 0: none
  const std::atomic<bool>* interrupted = nullptr;  // ends it when set
  std::string mark;                                // for end_marked()
  std::string outcome;  // an empty file for a rank to say why it ends (parallel/outcome.h)
};
struct CommandEnded {
  int code = 0;  // its exit status, or 128 + the signal that ended it
  bool timed_out = false, interrupted = false;
};
// Runs a command that must not outlive us: told to end when we are gone, when the time is up or
// when we are interrupted, and killed if it does not. A terminal's Ctrl-C does not reach it.
Result<CommandEnded> run_supervised(const std::vector<std::string>& line,
                                    const Supervision& supervision);
// Kills processes that a supervised command with this mark, or what it started, left behind.
void end_marked(const std::string& mark);
// Kills the processes of this machine whose environment has this variable at this value, and waits
// until they have let go of their files.
void end_processes_with(const std::string& variable, const std::string& value);

// The path of this program.
Result<std::string> own_path();
// Where PATH finds a program, the folders of system tools included; empty where it does not.
std::string find_program(const std::string& name);

}  // namespace quintet
