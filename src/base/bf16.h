// bfloat16 as storage: the upper half of a float32. Arithmetic is done in float32.
#pragma once

#include <bit>
#include <cstdint>

namespace quintet {

struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  // Rounds to nearest, ties to even, as the hardware does; NaN stays NaN.
  explicit bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>((is_nan ? word | 0x00400000u : rounded) >> 16);
  }
  operator float() const {  // NOLINT: widening loses nothing
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(bf16) == 2);

}  // namespace quintet
