// Cuts a model into pieces of about equal cost for the pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/t5_config.h"

namespace quintet {

// The piece ("chunk") of the pipeline that each part of the model belongs to; never decreasing
// along the model. The encoder's embedding goes with the first encoder layer, the decoder's with
// the first decoder layer.
struct StageCut {
  std::vector<std::int32_t> encoder, decoder;  // by layer
  std::int32_t head = 0;
  std::int32_t chunks = 1;
};

// Cuts into `chunks` pieces so that the costliest is as cheap as possible. Refused when there are
// fewer parts than pieces.
Result<StageCut> cut_into_stages(const T5Config& config, std::int64_t source, std::int64_t target,
                                 std::int32_t chunks);

}  // namespace quintet
