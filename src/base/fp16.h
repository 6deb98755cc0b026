// IEEE half precision as storage, for weights that others keep in it. Arithmetic is done in
// float32.
#pragma once

#include <bit>
#include <cstdint>

namespace quintet {

struct fp16 {
  std::uint16_t bits = 0;

  fp16() = default;
  // Rounds to nearest, ties to even; what is too large becomes infinite, NaN stays NaN.
  explicit fp16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u, magnitude = word & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x47800000u) {  // 2^16 and more
      half = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // below 2^-14: adding 1/2 leaves steps of 2^-24
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
             std::bit_cast<std::uint32_t>(0.5f);
    } else {
      half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  operator float() const {  // NOLINT: widening loses nothing
    const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu,
                        fraction = bits & 0x3ffu;
    if (exponent == 0) {
      const float value = static_cast<float>(fraction) * 0x1p-24f;
      return sign != 0 ? -value : value;
    }
    const std::uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + 112;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
  }
  bool is_finite() const { return (bits & 0x7c00u) != 0x7c00u; }
};
static_assert(sizeof(fp16) == 2);

}  // namespace quintet
