// Starts this program on several ranks of this machine or others, through mpirun.
#pragma once

#include <array>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

struct MpirunOptions {
  int ranks = 1;
  int threads = 0;         // of each rank; 0: the cores, shared out
  std::string hosts;       // mpirun's list; empty: this machine
  std::string cluster;     // an emulated one (cluster.h) instead; ranks = 0: all it is meant for
  int ranks_per_node = 0;  // on it; 0: as it was made
  std::vector<std::string> left_out;  // of its nodes or of the hosts: those that do not answer
};

// The command line for `arguments` of this program, with what the situation asks for: root, more
// ranks than cores, threads, binding.
Result<std::vector<std::string>> mpirun_line(const MpirunOptions& options,
                                             const std::vector<std::string>& arguments);
// As one would type it.
std::string shell_line(const std::vector<std::string>& words);

// While one is alive, what asks this process to end (SIGINT, SIGTERM, SIGHUP, SIGXCPU) or to save
// (SIGUSR1) is counted instead. run_to_end() has one of its own; who runs several commands holds
// one around them all.
class LaunchSignals {
 public:
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> before_{};
};
// Whether we were asked to end since the outermost LaunchSignals.
bool stop_was_asked();
// False, at once, when we are asked to end meanwhile.
bool wait_unless_stopped(double seconds);

// How a command ended.
struct CommandEnd {
  std::optional<Error> error;  // none: well
  bool said = false;           // a rank has already told people the error's message
};

// Runs a command line of mpirun's to its end. `log`: a file for all it prints; empty: our own
// output.
//
// What asks us to end (SIGINT, SIGTERM, SIGHUP, SIGXCPU) asks the ranks to save and end, and we
// wait for them: passed on as it is, mpirun would kill them a second later. A second one is passed
// on so. SIGUSR1 is passed on: save and go on. When the ranks have said why they end and mpirun
// does not (it waits for a machine that is gone), it is ended. Nothing that was started on this
// machine, emulated nodes included, is left when this returns.
CommandEnd run_to_end(const std::vector<std::string>& line, const std::string& log = "");
// The same, for those who only want to know the error.
Status run_command(const std::vector<std::string>& line, const std::string& log = "");

}  // namespace quintet
