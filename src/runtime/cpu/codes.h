// Eight-bit codes of a matrix (program/ops/quantize.h): of quantize, and of ops that leave the
// codes of their results instead of these.
#pragma once

#include <type_traits>

#include "base/fp8.h"
#include "base/parallel_for.h"
#include "program/ops/quantize.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/largest.h"

namespace quintet::cpu {

// The codes of a matrix with a known unit; either of them may be null. Of codes, the same.
template <class T, class F>
void write_codes(const T* x, const Shape& shape, float unit, F* codes, F* transposed) {
  if (codes == nullptr && transposed == nullptr) return;
  const bool run = shape.rank() == 1;
  const std::int64_t rows = run ? shape.numel() : shape.rows(), cols = run ? 1 : shape.cols();
  const float scale = fp8_scale(unit);
  const auto code_of = [scale](T value) {
    if constexpr (std::is_same_v<T, F>) {
      return value;
    } else {
      return F(static_cast<float>(value) * scale);
    }
  };
  parallel_for(rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const F code = code_of(x[r * cols + c]);
        if (codes != nullptr) codes[r * cols + c] = code;
        if (transposed != nullptr) transposed[c * rows + r] = code;
      }
    }
  });
}

// Where an op that can leave codes puts its result: in memory, or, if it leaves codes, in its
// scratch.
template <class T>
T* result_of(const OpContext& op) {
  T* result = op.out_data<T>(quantize::at_source(op.op.kind)->result);
  return result != nullptr ? result : reinterpret_cast<T*>(op.scratch());
}

// When the result is there: what else is asked of it, its codes or its largest magnitude.
template <class T>
void leave_codes_or_largest(const OpContext& op) {
  const quantize::AtSource& slots = *quantize::at_source(op.op.kind);
  if (quantize::elements_rounded(op) == 0) return leave_largest<T>(op, slots.result, slots.largest);
  const bool turned_only = !op.has_out(slots.codes);
  const Tensor& codes =
      op.out(slots.codes + (turned_only ? quantize::kTransposed : quantize::kCodes));
  const Shape shape = turned_only ? Shape{codes.shape.cols(), codes.shape.rows()} : codes.shape;
  const T* result = result_of<T>(op);
  with_fp8_type(codes.dtype, [&]<class F>(F) {
    const float unit = fp8_unit(largest_magnitude(result, shape.numel()), F::kLargestExponent);
    *op.out_data<float>(slots.codes + quantize::kUnit) = unit;
    write_codes(result, shape, unit, op.out_data<F>(slots.codes + quantize::kCodes),
                op.out_data<F>(slots.codes + quantize::kTransposed));
  });
}

}  // namespace quintet::cpu
