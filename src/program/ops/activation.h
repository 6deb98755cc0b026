// The feed-forward's non-linearity. Gated: h = [..., 2f] holds both products, y = f(h[:f]) * h[f:].
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
enum Inputs { kH };
enum Outputs { kY, kLargest };  // the last optional: y's largest magnitude (quantize.h)
}  // namespace activation

namespace activation_backward {
enum Inputs { kDy, kH };
enum Outputs { kDh, kLargest };  // likewise
}  // namespace activation_backward

}  // namespace quintet
