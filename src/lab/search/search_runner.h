// Runs what is left of a search. May be ended at any moment, by whatever: the next call goes on,
// and decides what this one would have decided, given the same order of results.
#pragma once

#include <atomic>

#include "lab/search/journal.h"

namespace quintet {

struct SearchRunOptions {
  Path folder;
  const std::atomic<bool>* interrupted = nullptr;
};

// kInterrupted after an interruption, with everything put away. Trials that diverged or did not fit
// are results; what goes wrong again and again without a trial's fault ends the search.
Status run_search(const SearchFile& search, SearchJournal& journal,
                  const SearchRunOptions& options);

// Threads of each rank of a trial on this machine, so that those at a time have the cores to
// themselves.
std::int64_t threads_per_rank(const SearchFile& search);

// The configuration of a trial at full length, for a run of its own.
Result<RunConfig> recommended_config(const SearchFile& search, const Trial& trial,
                                     std::int64_t threads);
// Writes FOLDER/best.toml and returns its text; empty where no trial has finished anything.
Result<std::string> write_best(const SearchFile& search, std::span<const Trial> trials,
                               const Path& folder);

}  // namespace quintet
