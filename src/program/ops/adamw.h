// AdamW with decoupled weight decay, over a flat range of parameters of any number of weights.
//
//   g = scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w = w (1 - lr decay) - lr rate_scale (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// `w` is the float32 master. Where the working copy is bf16, the op rounds the new weights into it.
// Or the master is the remainder of a bf16 working copy (base/remainder.h), which is then an input,
// too. A running mean of the weights rides along where there is one: ema = d ema + (1 - d) w.
#pragma once

namespace quintet {

struct AdamWAttrs {
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0;
  float ema = 0;  // its decay d
  float rate_scale = 1;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("b1", beta1);
    visit("b2", beta2);
    visit("eps", epsilon);
    visit("decay", weight_decay);
    if (rate_scale != 1) visit("rate_scale", rate_scale);
  }
};

namespace adamw {
enum Inputs { kGrad, kScale, kLearningRate, kStep, kMaster, kM, kV, kWorkingIn, kEma };
// The first three updated, and kEmaOut; kWorking and kEmaOut optional.
enum Outputs { kMasterOut, kMOut, kVOut, kWorking, kEmaOut };
}  // namespace adamw

}  // namespace quintet
