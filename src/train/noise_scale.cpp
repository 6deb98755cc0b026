#include "train/noise_scale.h"

#include <cmath>

#include "base/check.h"

namespace quintet {
namespace {

constexpr double kKept = 0.99;  // of the averages, from one step to the next

}  // namespace

NoiseScale::NoiseScale(std::int64_t small, std::int64_t large, NoiseAverages averages)
    : small_(static_cast<double>(small)), large_(static_cast<double>(large)), averages_(averages) {
  QT_CHECK(0 < small && small < large, "batches of {} and {}", small, large);
}

void NoiseScale::add(double small_square, double large_square) {
  if (!std::isfinite(small_square) || !std::isfinite(large_square)) return;
  const double square = (large_ * large_square - small_ * small_square) / (large_ - small_);
  const double trace = (small_square - large_square) / (1 / small_ - 1 / large_);
  averages_.square = kKept * averages_.square + (1 - kKept) * square;
  averages_.trace = kKept * averages_.trace + (1 - kKept) * trace;
  averages_.weight = kKept * averages_.weight + (1 - kKept);
}

std::optional<double> NoiseScale::value() const {
  if (averages_.weight <= 0 || averages_.square <= 0 || averages_.trace < 0) return std::nullopt;
  return averages_.trace / averages_.square;
}

}  // namespace quintet
