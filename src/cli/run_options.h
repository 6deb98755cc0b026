// The options that say what to run: a TOML file, --set, and shortcuts for the keys people change
// most.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "train/run_config.h"

namespace quintet {

class RunOptions {
 public:
  // Adds the options to a subcommand. The object must live until it is parsed.
  explicit RunOptions(CLI::App& command);

  // File first, then shortcuts, then --set, then `more` assignments.
  Result<RunConfig> load(const std::vector<std::string>& more = {}) const;
  // For commands that describe a run without being started on its ranks: --ranks.
  void add_ranks(CLI::App& command);
  std::int64_t ranks() const { return ranks_; }

 private:
  void shortcut(CLI::App& command, const std::string& flag, const std::string& key,
                const std::string& doc);

  std::string file_;
  std::int64_t ranks_ = 1;
  std::vector<std::string> assignments_;
  struct Shortcut {
    std::string key;
    std::unique_ptr<std::string> value;
    const CLI::Option* option;
  };
  std::vector<Shortcut> shortcuts_;
};

}  // namespace quintet
