// The dropout mask as a function of the element's global index. The attention kernels and the
// dropout op draw from it; every backend must draw the same.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace quintet::cpu {

class DropoutMask {
 public:
  DropoutMask(float rate, std::uint64_t seed, std::uint64_t site, std::int64_t step)
      : seed_(seed),
        stream_(site + static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15ull),
        threshold_(static_cast<std::uint32_t>(static_cast<double>(rate) * 0x1p32)),
        scale_(1.0f / (1.0f - rate)) {}

  // What element `index` is multiplied with: 0, or 1 / (1 - rate). Four elements share a Philox
  // block.
  float factor(std::int64_t index) const {
    const auto at = static_cast<std::uint64_t>(index);
    return philox(seed_, stream_, at >> 2)[at & 3] >= threshold_ ? scale_ : 0.0f;
  }

 private:
  std::uint64_t seed_, stream_;
  std::uint32_t threshold_;
  float scale_;
};

}  // namespace quintet::cpu
