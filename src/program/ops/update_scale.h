// From the squared norms of all gradients to the one factor the optimizer multiplies them with.
#pragma once

#include <cstdint>

namespace quintet {

// scale = min(1, clip_norm / (norm + 1e-6)), or 1 without clipping; NaN when the norm is not
// finite, which tells the update ops to leave everything untouched. Where limits are given, NaN as
// well when the loss is not finite, or loss or norm are above theirs.
struct UpdateScaleAttrs {
  float clip_norm = 0;  // 0: no clipping
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("clip", clip_norm);
  }
};

namespace squared_norm {
enum Inputs { kX };     // any floating tensor
enum Outputs { kSum };  // f32 [1]
}  // namespace squared_norm

// The sum of a few values: a rank's squared norms, before the ranks add up theirs.
namespace sum {
enum Inputs { kX };   // f32 [n]
enum Outputs { kY };  // f32 [1]
}  // namespace sum

namespace update_scale {
enum Inputs {
  kSquares,  // f32 [n]
  kLoss,     // f32 [2], the first counts; with limits only
  kLimits    // f32 [2], of loss and norm; optional
};
enum Outputs { kNorm, kScale };  // f32 [1] each
}  // namespace update_scale

}  // namespace quintet
