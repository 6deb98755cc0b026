#include "passes/pipeline_order.h"

#include <algorithm>

namespace quintet {
namespace {

// The k-th forward (or backward) of a stage with v pieces: micro-batches go through the pieces in
// groups of as many as there are stages, so that a piece's output arrives just when the next piece
// is due.
PipelineAction visit(bool forward, std::int32_t k, std::int32_t stages, std::int32_t stage,
                     std::int32_t pieces) {
  const std::int32_t group = k / (stages * pieces), within = k % (stages * pieces);
  const std::int32_t piece = forward ? within / stages : pieces - 1 - within / stages;
  return {forward, piece * stages + stage, group * stages + within % stages};
}

}  // namespace

Result<std::vector<PipelineAction>> pipeline_order(const std::string& schedule, std::int32_t stages,
                                                   std::int32_t stage,
                                                   std::int32_t chunks_per_stage,
                                                   std::int32_t micro_batches) {
  const bool interleaved = schedule == "interleaved" && chunks_per_stage > 1;
  if (interleaved && micro_batches % stages != 0) {
    return usage_error(
        "the interleaved schedule takes micro-batches in groups of {} (the stages); accumulate = "
        "{} is not "
        "a multiple, {} or {} would be",
        stages, micro_batches, std::max(micro_batches / stages * stages, stages),
        (micro_batches / stages + 1) * stages);
  }
  const std::int32_t pieces = interleaved ? chunks_per_stage : 1;
  const std::int32_t total = micro_batches * pieces;
  const std::int32_t ahead =
      interleaved ? (stages - stage - 1) * 2 + (pieces - 1) * stages : stages - stage - 1;
  const std::int32_t warm_up = std::min(total, ahead);
  // Without interleaving, groups have no meaning: micro-batches simply follow each other.
  const auto action = [&](bool forward, std::int32_t k) {
    return interleaved ? visit(forward, k, stages, stage, pieces)
                       : PipelineAction{forward, stage, k};
  };
  std::vector<PipelineAction> order;
  for (std::int32_t k = 0; k < warm_up; ++k) order.push_back(action(true, k));
  for (std::int32_t k = warm_up; k < total; ++k) {
    order.push_back(action(true, k));
    order.push_back(action(false, k - warm_up));
  }
  for (std::int32_t k = total - warm_up; k < total; ++k) order.push_back(action(false, k));
  return order;
}

}  // namespace quintet
