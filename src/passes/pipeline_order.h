// In which order a pipeline stage works on micro-batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

// One visit of a micro-batch to one of the stage's pieces of the model.
struct PipelineAction {
  bool forward = true;
  std::int32_t chunk = 0;  // counted over all stages: stage = chunk mod stages
  std::int32_t micro_batch = 0;
};

// "1f1b": forwards until the pipeline is full, then one forward, one backward in turn.
// "interleaved": the same with several pieces of the model on each stage, which shortens the time
// the pipeline takes to fill.
Result<std::vector<PipelineAction>> pipeline_order(const std::string& schedule, std::int32_t stages,
                                                   std::int32_t stage,
                                                   std::int32_t chunks_per_stage,
                                                   std::int32_t micro_batches);

}  // namespace quintet
