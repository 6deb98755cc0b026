// Before a run starts, its ranks compare what they were told. Ranks that differ (another file on
// another node, other arguments, another version) would train something that nobody asked for, or
// wait for each other for ever.
#pragma once

#include <string>

#include "parallel/communicator.h"
#include "train/run_config.h"

namespace quintet {

// Gives every rank its configuration back if all ranks have the same, and otherwise all of them the
// same error: a rank's own, where it has none, or what differs. Compared are all keys but
// train.threads, the program's version, the model's shape and the corpus's manifest.
// Called by all ranks together.
Result<RunConfig> agree_on_config(Result<RunConfig> mine, World& world);

// The same for any text: an error that names the first rank whose text differs from rank 0's, by
// lines.
Status agree_on_text(const std::string& mine, const std::string& what, World& world);

// For an error that all ranks have: it is rank 0's to tell. The others get it without its message,
// after a moment: a launcher ends all ranks when the first one ends badly.
Error told_by_rank_0(const Error& error, const World& world);

}  // namespace quintet
