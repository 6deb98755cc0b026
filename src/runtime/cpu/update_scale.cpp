#include "program/ops/update_scale.h"

#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {

namespace {

// A function of its own: inside two lambdas the compiler does not make vectors of it (8 times
// slower).
template <class T>
double sum_of_squares(const T* x, std::int64_t count) {
  double total = 0;
  for (std::int64_t i = 0; i < count; i += 256) {
    float part = 0;
    const std::int64_t last = std::min(count, i + 256);
#pragma omp simd reduction(+ : part)
    for (std::int64_t j = i; j < last; ++j)
      part += static_cast<float>(x[j]) * static_cast<float>(x[j]);
    total += static_cast<double>(part);
  }
  return total;
}

}  // namespace

void squared_norm(const OpContext& op) {
  with_float_type(op.in(squared_norm::kX).dtype, [&]<class T>(T) {
    const auto* x = op.in_data<T>(squared_norm::kX);
    const double sum = reduce_in_blocks(op.in(squared_norm::kX).shape.numel(),
                                        [x](std::int64_t begin, std::int64_t end) {
                                          return sum_of_squares(x + begin, end - begin);
                                        });
    *op.out_data<float>(squared_norm::kSum) = static_cast<float>(sum);
  });
}

void sum(const OpContext& op) {
  const auto* x = op.in_data<float>(sum::kX);
  double total = 0;
  for (std::int64_t i = 0; i < op.in(sum::kX).shape.numel(); ++i)
    total += static_cast<double>(x[i]);
  *op.out_data<float>(sum::kY) = static_cast<float>(total);
}

void update_scale(const OpContext& op) {
  const auto* squares = op.in_data<float>(update_scale::kSquares);
  double sum = 0;
  for (std::int64_t i = 0; i < op.in(update_scale::kSquares).shape.numel(); ++i) {
    sum += static_cast<double>(squares[i]);
  }
  const auto norm = static_cast<float>(std::sqrt(sum));
  const float clip = op.attrs<UpdateScaleAttrs>().clip_norm;
  float scale = clip > 0 ? std::min(1.0f, clip / (norm + 1e-6f)) : 1.0f;
  if (!std::isfinite(norm)) scale = std::numeric_limits<float>::quiet_NaN();
  if (op.has_in(update_scale::kLimits)) {
    const float loss = *op.in_data<float>(update_scale::kLoss);
    const auto* limits = op.in_data<float>(update_scale::kLimits);
    if (!std::isfinite(loss) || loss > limits[0] || norm > limits[1])
      scale = std::numeric_limits<float>::quiet_NaN();
  }
  *op.out_data<float>(update_scale::kNorm) = norm;
  *op.out_data<float>(update_scale::kScale) = scale;
}

}  // namespace quintet::cpu
