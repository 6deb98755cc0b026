// The gradient noise scale: how large a batch would have to be for the noise in its gradient to be
// as large as the gradient itself. Below it, twice the batch is worth nearly twice the steps; far
// above it, next to nothing.
//
// The simple noise scale of McCandlish et al. (An Empirical Model of Large-Batch Training, 2018),
// B = tr(S) / |G|^2, with S the covariance of one sequence's gradient. As the squared norm of a
// mean over b sequences is |G|^2 + tr(S) / b on average, two batch sizes tell both, without bias
// (appendix A.1). Both are averaged over steps before they are divided: single steps are noise.
#pragma once

#include <cstdint>
#include <optional>

namespace quintet {

// The averages, for a checkpoint. Those of the latest 100 steps or so count.
struct NoiseAverages {
  double trace = 0, square = 0;  // of the covariance; of the gradient: sums with falling weights
  double weight = 0;             // the sum of these weights
};

class NoiseScale {
 public:
  // `small` < `large`: sequences of the two batches.
  NoiseScale(std::int64_t small, std::int64_t large, NoiseAverages averages = {});

  // The squared norms of a step's gradients: the mean of those of small batches, that of the large
  // one. What is not finite is left out.
  void add(double small_square, double large_square);

  // In sequences; nothing as long as noise leaves the gradient's average below zero.
  std::optional<double> value() const;
  const NoiseAverages& averages() const { return averages_; }

 private:
  double small_, large_;
  NoiseAverages averages_;
};

}  // namespace quintet
