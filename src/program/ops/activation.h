// The feed-forward's non-linearity. Gated: h = [..., 2f] holds both products, y = f(h[:f]) * h[f:].
//
// Instead of the result, y or dh, and its largest magnitude, either op can leave what quantize
// would make of them, to the same bits: then the result itself is never in memory (quantize.h,
// AtSource).
#pragma once

#include <cstdint>

namespace quintet {

enum class Nonlinearity : std::uint8_t { kGeluTanh, kRelu };

struct ActivationAttrs {
  Nonlinearity function = Nonlinearity::kGeluTanh;
  bool gated = true;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("fn", function == Nonlinearity::kGeluTanh ? "gelu_tanh" : "relu");
    visit("gated", gated);
  }
};

namespace activation {
enum Inputs { kH, kGuess };
// The first two, of which y's largest magnitude is optional, or the others.
enum Outputs { kY, kLargest, kCodes, kTransposed, kUnit, kGuessOut };
}  // namespace activation

namespace activation_backward {
enum Inputs { kDy, kH, kGuess };
enum Outputs { kDh, kLargest, kCodes, kTransposed, kUnit, kGuessOut };  // likewise
}  // namespace activation_backward

}  // namespace quintet
