// A matrix in floats of eight bits (base/fp8.h), as operand of products: as it is, transposed, or
// both, and what the codes are to be multiplied with. Products of such operands sum along rows of
// both, so the backward needs transposed copies.
//
// Leading dims are flattened into rows. Its gradient is that of the identity.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "program/tensor.h"

namespace quintet {

enum class OpKind : std::uint8_t;
struct Op;
struct OpView;
struct Program;
struct TensorSpec;
class Builder;

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

// An op that writes the codes of its own result must know their unit before it knows the result's
// largest magnitude. A device takes the unit that the op had the last time, and writes the codes
// once more if that was not the one: results never depend on the guess, only how soon they are
// there. i32 [kGuessWords], bits of float32: the unit to try next, and the one that was tried.
inline constexpr std::int64_t kGuessWords = 2;

// Throws LogicError for shapes that products in eight bits do not take.
void check_operand(const Shape& shape);
// What is made of a matrix, in the order of Outputs.
std::array<TensorSpec, 3> operands_of(const Shape& shape, DType format);

// Where an op has its result, the result's largest magnitude, and what it can leave instead of
// these: codes, in the order of Outputs, and behind them the guess, updated in place. The guess is
// also its input `guess`.
struct AtSource {
  int result, largest, codes, guess;
};
// Null for kinds that cannot.
const AtSource* at_source(OpKind kind);
// The codes and the guess, as results, if the op was asked for them.
void add_codes_at_source(const OpView& op, const Shape& result, std::vector<TensorSpec>& specs);
// Elements of the result whose codes an op leaves; 0 if it leaves none.
std::int64_t elements_rounded(const OpView& op);
}  // namespace quantize

// The same for several matrices, each with a unit of its own, in one op: the weights that a layer
// multiplies with. They are all there when the layer begins, unlike its activations, and one by one
// they are short work: on a GPU most of a launch would be its beginning and its end.
//
// Matrix i has the i-th pair of inputs and the i-th triple of outputs. The units of all are known,
// or those of none. The matrices come in the order in which products will read their codes. There
// is no gradient: products add to those of their weights by themselves.
//
// A rank that has only some of a matrix gives its run of the elements as a vector: it finds the
// run's unit, or, where the unit is known, the codes. A matrix of codes can be turned: they were
// gathered from such ranks.
namespace quantize_weights {
enum Inputs { kX, kKnownUnit, kInputs };
using Outputs = quantize::Outputs;  // any may be absent
inline constexpr int kOutputs = 3;

// Elements of a run come in as many at a time, 16 bytes of bf16.
inline constexpr std::int64_t kRunMultiple = 8;

constexpr int in(int matrix, Inputs slot) {
  return matrix * kInputs + slot;
}
constexpr int out(int matrix, Outputs slot) {
  return matrix * kOutputs + slot;
}
int count(const Op& op);
}  // namespace quantize_weights

// The largest magnitude of a tensor, if the op that makes the tensor left it and the reader, an op
// of this unit, is in the same piece of the pipeline; kNone otherwise.
TensorId largest_of(const Program& program, TensorId tensor, std::int32_t unit);

// The weight of which quantize_weights made these codes.
TensorId weight_of_codes(const Program& program, TensorId codes);
// Its transposed codes, for the backward. Of the weights of that op the last is turned alone and
// the others together: the last is the first that the backward reads, when the layer's widest
// gradient is still to be rounded, and memory is not to hold what only later products read.
TensorId transposed_weight(Builder& builder, TensorId codes);

}  // namespace quintet
