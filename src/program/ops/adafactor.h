// Adafactor (Shazeer and Stern, 2018) over a flat range of parameters. A matrix keeps the running
// means of its squared gradient by row and by column, everything else one value an element. Four
// ops, because two sums over a whole weight stand between the gradient and the update, and where a
// weight is sharded those sums cross ranks:
//
//   sums      per weight: sums of g^2 over columns and over rows; their total, from which comes the
//             norm that `scale` clips by: no other look at the gradients is needed for it
//   moments   running means of (scale g)^2 + eps1; factors r_i = (R_i / mean R)^-1/2,
//             c_j = C_j^-1/2
//   rms       per weight: sum of squares of the update u_ij = scale g_ij r_i c_j, and of the weight
//             as the model computes with it: of millions of weights, what their rounding adds is
//             lost in the mean, and half of the bytes need not be read
//   apply     w -= lr * rate_scale * max(eps2, rms(w)) * u / max(1, rms(u) / clip_threshold)
//             and where there is a running mean of the weights, ema = d ema + (1 - d) w
//
// `w` is the float32 master, or its remainder beside a bf16 working copy (base/remainder.h), which
// is then an input, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quintet {

// One weight, and the run of it that lies in this rank's flat range. The state is that of the whole
// weight, the same on all ranks that share it; each adds its run to the sums.
struct AdafactorSegment {
  std::int64_t begin = 0,
               end = 0;  // elements of the flat range; equal when nothing of the weight is here
  std::int64_t rows = 1, cols = 1;  // of the whole weight
  bool factored = false;            // a matrix; else the state has one value for each element
  std::int64_t state = 0;           // first element of its state: rows then cols, or rows * cols
  // The part of the weight this rank computes with, row-major, and the run's first element in it.
  // Rows past `part_rows` are padding.
  std::int64_t row0 = 0, col0 = 0, part_rows = 1, part_cols = 1, first = 0;
  bool counted =
      true;  // this rank's run enters the sums: of ranks with the same run, only one's does
  bool in_norm = true;  // and the total, which all ranks of the world add up
  float weight_decay = 0;
  float rate_scale = 1;

  std::int64_t state_size() const { return factored ? rows + cols : rows * cols; }
};

struct AdafactorAttrs {
  float decay_rate = -0.8f, epsilon1 = 1e-30f, epsilon2 = 1e-3f;
  float clip_threshold = 1;
  float ema = 0;  // d
  bool scale_parameter = true;
  std::vector<AdafactorSegment> segments;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("decay_rate", decay_rate);
    visit("weights", segments.size());
  }
};

namespace adafactor {
// Rows of the part that have elements of the run: [first_row, first_row + row_count).
inline std::int64_t first_row(const AdafactorSegment& s) {
  return s.first / s.part_cols;
}
inline std::int64_t row_count(const AdafactorSegment& s) {
  if (s.begin == s.end) return 0;
  const std::int64_t last = (s.first + (s.end - s.begin) + s.part_cols - 1) / s.part_cols;
  return std::max<std::int64_t>(0, std::min(last, s.part_rows) - first_row(s));
}
}  // namespace adafactor

namespace adafactor_sums {
enum Inputs { kGrad };
enum Outputs { kSums, kSquare };  // f32 [state size]; f32 [1]: the total
}  // namespace adafactor_sums

namespace adafactor_moments {
enum Inputs { kSums, kScale, kStep, kState };
enum Outputs { kStateOut, kFactors };  // f32 [state size] each
}  // namespace adafactor_moments

namespace adafactor_rms {
enum Inputs { kGrad, kScale, kFactors, kWeights };  // these as the model computes with them
enum Outputs { kSquares };  // f32 [2 * weights]: of the update, of the weight
}  // namespace adafactor_rms

namespace adafactor_apply {
enum Inputs { kGrad, kScale, kLearningRate, kFactors, kSquares, kMaster, kWorkingIn, kEma };
enum Outputs { kMasterOut, kWorking, kEmaOut };
}  // namespace adafactor_apply

}  // namespace quintet
