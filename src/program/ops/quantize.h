// A matrix in floats of eight bits (base/fp8.h), as operand of products: as it is, transposed, or
// both, and what the codes are to be multiplied with. Products of such operands sum along rows of
// both, so the backward needs transposed copies.
//
// Leading dims are flattened into rows. Its gradient is that of the identity.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "program/tensor.h"

namespace quintet {

// Of the backward's gradients. Each tensor has a scale of its own, so the range of e4m3 is enough,
// and it has one bit of fraction more than e5m2.
inline constexpr DType kGradientFormat = DType::kE4M3;

struct QuantizeAttrs {
  DType format = DType::kE4M3;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("format", name_of(format));
  }
};

namespace quantize {
// The unit, where it is known; otherwise it is a result, from the largest magnitude if that came
// along with X, or from one more look at X.
enum Inputs { kX, kKnownUnit, kLargest };
// Either of the first two may be absent.
enum Outputs { kCodes, kTransposed, kUnit };

// Products of eight-bit floats want rows of 16 bytes.
inline constexpr std::int64_t kMultiple = 16;

// What an op that makes an operand leaves beside it, if asked to: i32 [kSlots], bits of float32
// magnitudes, of which the largest is that of the whole.
inline constexpr std::int64_t kSlots = 256;
}  // namespace quantize

struct Program;

// The largest magnitude of a tensor, if the op that makes the tensor left it and the reader, an op
// of this unit, is in the same piece of the pipeline; kNone otherwise.
TensorId largest_of(const Program& program, TensorId tensor, std::int32_t unit);

}  // namespace quintet
