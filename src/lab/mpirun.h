// Starts this program on several ranks of this machine or others, through mpirun.
#pragma once

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

// Runs a command to its end; a SIGTERM to us goes to it. `log`: a file for all it prints; empty:
// our own output. Says how it ended where that was not well.
Status run_command(const std::vector<std::string>& line, const std::string& log = "");

}  // namespace quintet
