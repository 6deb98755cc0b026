// `quintet launch --restarts N`: a run that was lost is started again from its newest checkpoint,
// with fewer data-parallel ranks where hosts no longer answer, at the same global batch and so on
// the same samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/mpirun.h"
#include "train/run_config.h"

namespace quintet {

// Whether starting again can help: after a loss; after an error inside, which may be a device's or
// a library's; where memory was refused to a run that had been getting on. Not where the same would
// happen again (settings, damaged files, a loss that is no number, a full disk), nor when asked to
// stop.
bool can_start_again(ErrorCode code, bool got_on);

// The most ranks, `most` at most, that the run's layout (tp x pp) and this global batch allow.
Result<std::int64_t> ranks_that_fit(const RunConfig& config, std::int64_t global_batch,
                                    std::int64_t most);

// What a run takes besides its arguments to go on, on so many ranks.
std::vector<std::string> arguments_to_go_on(std::vector<std::string> arguments,
                                            std::int64_t global_batch, bool other_ranks);

// Seconds to wait before a start, after so many in a row that brought nothing.
double restart_delay(int in_vain);

// Runs `arguments` (those of `train`, which `config` is read from) to the end, starting it again
// `restarts` times at most, and no more than three times in a row without a new checkpoint. What
// asks us to end does so for good. All that happens is said on standard error.
Status run_with_restarts(MpirunOptions options, const std::vector<std::string>& arguments,
                         const RunConfig& config, int restarts);

}  // namespace quintet
