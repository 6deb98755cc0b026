// Root-mean-square norm over the last dim: y = w * x / sqrt(mean(x^2) + epsilon), statistics in
// float32.
#pragma once

#include <algorithm>
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
enum Inputs { kX, kWeight };  // [..., d], [d]
enum Outputs { kY, kRstd };   // [..., d], f32 [...]: 1 / sqrt(mean(x^2) + eps)
}  // namespace rms_norm

// dx = addend + the norm's gradient; the addend is the gradient that came along the residual
// connection.
namespace rms_norm_backward {
enum Inputs { kDy, kX, kWeight, kRstd, kAddend, kDWeightAddend };  // the last two optional
enum Outputs { kDx, kDWeight };

// The weight's gradient is summed in this many fixed blocks of rows, then over the blocks: the same
// order whatever the number of threads.
inline std::int64_t row_blocks(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / 16, 1, 64);
}
// The same on a device, where a block of rows is a block of threads.
inline std::int64_t device_blocks(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / 8, 1, 792);
}
}  // namespace rms_norm_backward

}  // namespace quintet
