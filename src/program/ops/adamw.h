// AdamW with decoupled weight decay, over a flat range of parameters of any number of weights.
//
//   g = scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w = w (1 - lr decay) - lr rate_scale (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// `w` is the float32 master. Where the working copy is bf16, the op rounds the new weights into it.
// Or the master is the remainder of a bf16 working copy (base/remainder.h), which is then an input,
// too. A running mean of the weights rides along where there is one: ema = d ema + (1 - d) w.
//
// The moments are float32, or smaller (base/moments.h): bf16, or codes of eight bits and a scale
// for each block of them. Then the range is of one weight. What is rounded at the end of the op is
// what it keeps, not what it computes the weights from.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace quintet {

// Where the elements of an op lie in the whole weight: what random bits round them depends on that
// and the step alone, so that all layouts round alike.
struct MomentPlace {
  std::uint64_t seed = 0, site = 0;  // of the run; the stream of the weight
  // Element i of the op is element p = first + i of a part in rows of `cols`, and the part's rows
  // lie `cols + apart` apart in the whole, from element `origin` on.
  std::int64_t first = 0, cols = 1, apart = 0, origin = 0;

  constexpr std::int64_t element(std::int64_t i) const {
    const std::int64_t p = first + i;
    return origin + p + (apart == 0 ? 0 : p / cols * apart);
  }
  // Whether four elements from any multiple of four on are neighbours in the whole and share a
  // Philox block.
  constexpr bool in_fours() const {
    return (first | origin) % 4 == 0 && (apart == 0 || (cols | apart) % 4 == 0);
  }
  constexpr std::uint64_t stream(std::int64_t step) const {
    return site + static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15ull;
  }
};

// An element's 32 random bits: the lower half for its first moment, the upper for its second. Four
// elements share a Philox block, and the last one drawn is kept.
class MomentWords {
 public:
  constexpr MomentWords(const MomentPlace& place, std::int64_t step)
      : seed_(place.seed), stream_(place.stream(step)) {}

  constexpr std::uint32_t at(std::int64_t element) {
    const auto e = static_cast<std::uint64_t>(element);
    if ((e >> 2) != block_) words_ = philox(seed_, stream_, block_ = e >> 2);
    const std::uint32_t lane = e & 3;
    return lane == 0 ? words_[0] : lane == 1 ? words_[1] : lane == 2 ? words_[2] : words_[3];
  }

 private:
  std::uint64_t seed_, stream_, block_ = ~std::uint64_t{0};
  std::array<std::uint32_t, 4> words_{};
};

struct AdamWAttrs {
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0;
  float ema = 0;  // its decay d
  float rate_scale = 1;
  MomentPlace place = {};  // of moments that are rounded
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("b1", beta1);
    visit("b2", beta2);
    visit("eps", epsilon);
    visit("decay", weight_decay);
    if (rate_scale != 1) visit("rate_scale", rate_scale);
    if (place.site != 0) visit("element", place.element(0));
  }
};

namespace adamw {
enum Inputs {
  kGrad,
  kScale,
  kLearningRate,
  kStep,
  kMaster,
  kM,
  kV,
  kWorkingIn,
  kEma,
  kMScales,
  kVScales
};
// All but kWorking are updated; kWorking, kEmaOut and the scales, which codes have, are optional.
enum Outputs { kMasterOut, kMOut, kVOut, kWorking, kEmaOut, kMScalesOut, kVScalesOut };
}  // namespace adamw

}  // namespace quintet
