// Learning rates that carry over from a narrow model to a wide one: maximal update parametrization
// (Yang et al., Tensor Programs V, 2022) of T5, as initial values and a factor of each weight's
// learning rate. docs/model.md has the rules and where they come from.
//
// Nothing of it is in the forward. The 1/m that the output needs is in two weights, m^-1/2 each:
// the decoder's last norm, and the head (where the head is the embedding, T5's own d_model^-1/2 has
// the other half). So a trained model is a T5 like any other, and the norms of all gradients, and
// with them a clipping threshold, stay what they are at the base width.
#pragma once

#include <cmath>

#include "model/t5_config.h"
#include "program/program.h"

namespace quintet {

// With m = d_model / base_width; 1 without a base width, where nothing changes. Weights that are
// not named here (embedding, norms, relative biases) have initial values and learning rates that
// do not depend on the width.
class WidthRules {
 public:
  explicit WidthRules(const T5Config& config)
      : base_(static_cast<double>(config.base_width > 0 ? config.base_width : config.d_model)),
        m_(static_cast<double>(config.d_model) / base_) {}

  // The width of the model that learning rates were chosen for.
  double base() const { return base_; }
  // A matrix from width to width, drawn with fan-in^-1/2: its rate falls like 1/m.
  Weight hidden(Weight weight) const {
    weight.rate_scale = 1 / m_;
    weight.relative_size = 1 / std::sqrt(m_);
    return weight;
  }
  // One of the two that make the logits: the decoder's last norm, which begins at m^-1/2 instead of
  // 1, and a head of its own, drawn with d_model^-1/2 as ever. Their rates fall as their sizes do.
  Weight output(Weight weight) const {
    weight.rate_scale = weight.relative_size = 1 / std::sqrt(m_);
    if (weight.init_std == 0) weight.init_value = 1 / std::sqrt(m_);
    return weight;
  }

 private:
  double base_, m_;
};

}  // namespace quintet
