// Floats of eight bits, as storage for operands of matrix products, and the scales that bring a
// tensor's values into their range.
//
// e4m3 has three bits of fraction and reaches 448, e5m2 two and 57,344. Values are rounded to the
// nearest, ties to even; what lies beyond the largest becomes the largest. A scale is a power of
// two: multiplying with it is exact, and a value that stays above the format's smallest normal
// number is rounded alike whatever the scale is. So ranks that see different parts of a tensor need
// not agree on one.
#pragma once

#include <bit>
#include <cstdint>

namespace quintet {

template <int kExponentBits, int kLargestCode, int kNanCode>
struct Fp8 {
  static constexpr int kFraction = 7 - kExponentBits, kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kFraction;  // from float32's fraction to ours
  // The largest value is 1.75 times two to this, in both formats.
  static constexpr int kLargestExponent = (kLargestCode >> kFraction) - kBias;

  std::uint8_t bits = 0;

  constexpr Fp8() = default;
  explicit constexpr Fp8(float value) : bits(encode(value)) {}
  explicit constexpr operator float() const { return decode(bits); }

  static constexpr float decode(std::uint8_t code) {
    const std::uint32_t magnitude = code & 0x7fu;
    const std::uint32_t sign = std::uint32_t{code} >> 7 << 31;
    if (magnitude > kLargestCode)
      return std::bit_cast<float>(
          sign | (kLargestCode + 1 == kNanCode || magnitude > kLargestCode + 1 ? 0x7fc00000u
                                                                               : 0x7f800000u));
    constexpr float kStep = std::bit_cast<float>((128u - kBias - kFraction) << 23);
    const float value = magnitude < 1u << kFraction
                            ? static_cast<float>(magnitude) * kStep
                            : std::bit_cast<float>((magnitude << kShift) + ((127u - kBias) << 23));
    return sign != 0 ? -value : value;
  }

  static constexpr std::uint8_t encode(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = all >> 31 << 7, magnitude = all & 0x7fffffffu;
    std::uint32_t code = 0;
    if (magnitude > 0x7f800000u) {
      code = kNanCode;
    } else if (magnitude >= std::bit_cast<std::uint32_t>(decode(kLargestCode))) {
      code = kLargestCode;
    } else if (magnitude < (128u - kBias) << 23) {
      // Below the normal numbers all steps are equal: those of float32 just above this power of
      // two.
      constexpr std::uint32_t kEven = (128u - kBias + kShift) << 23;
      code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) +
                                          std::bit_cast<float>(kEven)) -
             kEven;
    } else {
      const std::uint32_t half = (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1u);
      code = ((magnitude + half) >> kShift) - ((127u - kBias) << kFraction);
    }
    return static_cast<std::uint8_t>(sign | code);
  }
};

using e4m3 = Fp8<4, 0x7e, 0x7f>;
using e5m2 = Fp8<5, 0x7b, 0x7f>;

// What a code is to be multiplied with, for a tensor whose largest magnitude has these bits as a
// float32: the least power of two under which nothing is cut off, for zeros the least of all. So
// the unit of a whole is the largest of its parts' units. Not finite where the magnitude is not.
constexpr float fp8_unit(std::uint32_t largest, int largest_exponent) {
  if (largest >= 0x7f800000u) return std::bit_cast<float>(largest);
  const auto exponent = static_cast<std::int32_t>((largest + 0x001fffffu) >> 23);  // 1.75 and less
  const std::int32_t unit = exponent - largest_exponent;
  return std::bit_cast<float>(static_cast<std::uint32_t>(unit < 1 ? 1 : unit) << 23);
}
// Its inverse.
constexpr float fp8_scale(float unit) {
  const auto bits = std::bit_cast<std::uint32_t>(unit);
  return bits >= 0x7f800000u ? 1.0f : std::bit_cast<float>((254u << 23) - bits);
}

}  // namespace quintet
