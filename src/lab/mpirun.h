// Starts this program on several ranks of this machine or others, through mpirun.
#pragma once

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
};

// The command line for `arguments` of this program, with what the situation asks for: root, more
// ranks than cores, threads, binding.
Result<std::vector<std::string>> mpirun_line(const MpirunOptions& options,
                                             const std::vector<std::string>& arguments);
// As one would type it.
std::string shell_line(const std::vector<std::string>& words);

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
// does not (it waits for a machine that is gone), it is ended.
CommandEnd run_to_end(const std::vector<std::string>& line, const std::string& log = "");
// The same, for those who only want to know the error.
Status run_command(const std::vector<std::string>& line, const std::string& log = "");

}  // namespace quintet
