// The text that a run is validated on: the held-out split of its corpus, another corpus, or a
// stream of synthetic examples that no training reaches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "data/batch.h"
#include "train/run_config.h"

namespace quintet {

struct ValidationData {
  std::unique_ptr<BatchSource> source;
  std::int64_t first = 0;                // the stream's first sample
  std::int64_t most = INT64_MAX;         // samples, before they come again
  std::vector<std::int32_t> text_bytes;  // that an id stands for; empty: not known
  bool padded = false;                   // sources may be shorter than batch.source
};

// Refuses data without such a part, and says what to do about it. `options` are training's: the
// lengths are theirs.
Result<ValidationData> open_validation_data(const RunConfig& config, const StepOptions& options);

}  // namespace quintet
