#include "program/ops/quantize.h"

#include <algorithm>

#include "base/parallel_for.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/largest.h"

namespace quintet::cpu {

void quantize(const OpContext& op) {
  const Shape& shape = op.in(quantize::kX).shape;
  const std::int64_t rows = shape.rows(), cols = shape.cols();
  with_float_type(op.in(quantize::kX).dtype, [&]<class T>(T) {
    with_fp8_type(op.attrs<QuantizeAttrs>().format, [&]<class F>(F) {
      const auto* x = op.in_data<T>(quantize::kX);
      auto *codes = op.out_data<F>(quantize::kCodes),
           *transposed = op.out_data<F>(quantize::kTransposed);
      const bool known = op.has_in(quantize::kKnownUnit);
      const auto* slots = op.in_data<std::uint32_t>(quantize::kLargest);
      const auto largest = [&] {
        return slots == nullptr ? largest_magnitude(x, rows * cols)
                                : *std::max_element(slots, slots + quantize::kSlots);
      };
      const float unit = known ? *op.in_data<float>(quantize::kKnownUnit)
                               : fp8_unit(largest(), F::kLargestExponent);
      const float scale = fp8_scale(unit);
      if (!known) *op.out_data<float>(quantize::kUnit) = unit;
      parallel_for(rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t r = begin; r < end; ++r) {
          for (std::int64_t c = 0; c < cols; ++c) {
            const F code(static_cast<float>(x[r * cols + c]) * scale);
            if (codes != nullptr) codes[r * cols + c] = code;
            if (transposed != nullptr) transposed[c * rows + r] = code;
          }
        }
      });
    });
  });
}

}  // namespace quintet::cpu
