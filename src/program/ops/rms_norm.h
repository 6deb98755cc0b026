// Root-mean-square norm over the last dim: y = w * x / sqrt(mean(x^2) + epsilon), statistics in
// float32.
#pragma once

#include <cstdint>

namespace quintet {

struct RmsNormAttrs {
  float epsilon = 1e-6f;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("eps", epsilon);
  }
};

namespace rms_norm {
enum Inputs { kX, kWeight, kGuess };  // [..., d], [d]
// [..., d]; f32 [...]: 1 / sqrt(mean(x^2) + eps); y's largest magnitude (quantize.h), optional. Or,
// instead of the first and the last, y's codes (quantize.h, AtSource).
enum Outputs { kY, kRstd, kLargest, kCodes, kTransposed, kUnit, kGuessOut };
}  // namespace rms_norm

// dx = addend + the norm's gradient; the addend is the gradient that came along the residual
// connection.
namespace rms_norm_backward {
enum Inputs { kDy, kX, kWeight, kRstd, kAddend, kDWeightAddend };  // the last two optional
enum Outputs { kDx, kDWeight, kLargest };                          // the last optional: of dx
}  // namespace rms_norm_backward

}  // namespace quintet
