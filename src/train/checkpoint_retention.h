// Which checkpoints of a run stay.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/file_store.h"
#include "base/result.h"

namespace quintet {

struct Retention {
  std::int64_t newest = 2;  // 0: all
  std::int64_t every = 0;   // and those whose step is a multiple of it; 0: none
  std::int64_t best = 0;    // and so many of lowest validation loss
};

struct Candidate {
  std::int64_t step = 0;
  std::optional<double> validation;
};

// The steps of those that may go, oldest first. The newest never does.
std::vector<std::int64_t> superfluous(std::vector<Candidate> all, const Retention& retention);

// Removes what a run does not keep. A folder gets another name first, so that one that is half
// removed is never taken for a checkpoint.
Status remove_superfluous(const Path& run_folder, const Retention& retention, FileStore& files);

// Removes what runs left behind that ended while writing or removing a checkpoint.
Status remove_leftovers(const Path& run_folder, FileStore& files);

}  // namespace quintet
