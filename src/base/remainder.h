// A float32 as a bf16 and the 16 bits it lacks: a bf16 working copy of the weights together with
// such a remainder is float32 master weights in two bytes less for each of them.
//
// The bf16 is the float32 rounded to nearest (ties away from zero, so that the remainder always
// fits); the remainder is the difference of the bits, added back as an integer. Exact both ways.
#pragma once

#include <bit>
#include <cstdint>

#include "base/bf16.h"

namespace quintet {

struct SplitFloat {
  bf16 high;
  std::int16_t low = 0;

  SplitFloat(bf16 high, std::int16_t low) : high(high), low(low) {}
  explicit SplitFloat(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t upper = (word + 0x8000u) >> 16;
    high.bits = static_cast<std::uint16_t>(upper);
    low = static_cast<std::int16_t>(static_cast<std::uint16_t>(word - (upper << 16)));
  }
  explicit operator float() const {
    const std::uint32_t word = static_cast<std::uint32_t>(high.bits) << 16;
    return std::bit_cast<float>(word + static_cast<std::uint32_t>(std::int32_t{low}));
  }
};

}  // namespace quintet
