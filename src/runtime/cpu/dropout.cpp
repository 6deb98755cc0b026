#include "program/ops/dropout.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/dropout_mask.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {

void dropout(const OpContext& op) {
  const auto& attrs = op.attrs<DropoutAttrs>();
  const DropoutMask mask(attrs.rate, attrs.seed, attrs.site,
                         *op.in_data<std::int64_t>(dropout::kStep));
  const Shape& shape = op.in(dropout::kX).shape;
  const std::int64_t cols = shape.cols();
  with_float_type(op.in(dropout::kX).dtype, [&]<class T>(T) {
    const auto* x = op.in_data<T>(dropout::kX);
    const auto* addend = op.in_data<T>(dropout::kAddend);
    auto* y = op.out_data<T>(dropout::kY);  // may be x or the addend itself
    parallel_for(shape.rows(), row_grain(4 * cols), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t first =
            (attrs.index.row_offset + r) * attrs.index.cols + attrs.index.col_offset;
        for (std::int64_t c = 0; c < cols; c += DropoutMask::kAtOnce) {
          const std::int64_t at = r * cols + c, count = std::min(DropoutMask::kAtOnce, cols - c);
          float factors[DropoutMask::kAtOnce];
          mask.factors(first + c, count, factors);
#pragma omp simd
          for (std::int64_t i = 0; i < count; ++i) {
            const float base = addend == nullptr ? 0.0f : static_cast<float>(addend[at + i]);
            y[at + i] = static_cast<T>(base + static_cast<float>(x[at + i]) * factors[i]);
          }
        }
      }
    });
  });
}

}  // namespace quintet::cpu
