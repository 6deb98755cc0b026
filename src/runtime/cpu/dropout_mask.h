// The dropout mask as a function of the element's global index. The attention kernels and the
// dropout op draw from it; every backend must draw the same.
#pragma once

#include <algorithm>
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

  // Elements that are drawn at once.
  static constexpr std::int64_t kAtOnce = 256;

  // What `count` elements from `first` on are multiplied with: 0, or 1 / (1 - rate). Four elements
  // share a Philox block.
  void factors(std::int64_t first, std::int64_t count, float* to) const {
    std::uint32_t words[kAtOnce + 4];
    for (std::int64_t done = 0; done < count; done += kAtOnce) {
      const auto at = static_cast<std::uint64_t>(first + done);
      const std::int64_t now = std::min(kAtOnce, count - done);
      philox_blocks(seed_, stream_, at / 4, static_cast<std::uint64_t>(now + 6) / 4, words);
      const std::uint32_t* mine = words + at % 4;
#pragma omp simd
      for (std::int64_t i = 0; i < now; ++i) {
        to[done + i] = mine[i] >= threshold_ ? scale_ : 0.0f;
      }
    }
  }

 private:
  std::uint64_t seed_, stream_;
  std::uint32_t threshold_;
  float scale_;
};

}  // namespace quintet::cpu
