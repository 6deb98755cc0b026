// Runs another program to its end and hands back what it printed: for the system's tools (ip, tc)
// and for this program's own subcommands.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

// What the command wrote to standard output. An error where it cannot be started or does not end
// well: its code (kIo for other programs than ours) and the last line of its standard error.
Result<std::string> output_of(const std::vector<std::string>& line);

// The path of this program.
Result<std::string> own_path();
// Where PATH finds a program, the folders of system tools included; empty where it does not.
std::string find_program(const std::string& name);

}  // namespace quintet
