// AdamW's moments in fewer bytes than float32 takes (optimizer.moments): bf16, or eight bits beside
// a scale for each block of them.
//
// Both are rounded at random, up as often as makes the mean come out right: the second moment moves
// by some thousandth of itself in a step, and rounding to the nearest would undo that every time.
// Everything here is integer arithmetic or a product with a power of two, hence exact and the same
// on every device; and a value that can be held is never changed, whatever the random bits are.
#pragma once

#include <bit>
#include <cstdint>

namespace quintet {

// Sixteen random bits decide each rounding. These round to the nearest, ties away from zero.
inline constexpr std::uint32_t kToNearest = 0x8000;

// The bits of one of the two bf16 around a value.
constexpr std::uint16_t rounded_to_bf16(float value, std::uint32_t random) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random) >> 16);
}

// --- Eight bits
//
// A code is a small float: three bits of fraction, above them an exponent of kBits - 3 bits. With
// s the block's scale and e = 2^(kBits - 3) - 2, code c stands for
//
//   c / 8 * 2^-e * s                        where c < 8
//   (1 + c % 8 / 8) * 2^(c / 8 - 1 - e) * s elsewhere
//
// up to 1.875 s: equal steps at the bottom, then eight to the octave. The first moment has a sign
// and 7 bits, e = 14; the second 8 bits, e = 30, twice as many octaves for what is a square.
template <int kBits>
struct MomentCode {
  static constexpr std::int32_t kOctaves = 1 << (kBits - 3), kLast = (1 << kBits) - 1;
  static constexpr std::int32_t kShift = 8 * (128 - kOctaves);  // to the upper bits of a float32
  static constexpr float kLeast = std::bit_cast<float>((8 + kShift) << 20);  // 2^-e
  // The equal steps at the bottom are those of the octave above, eight codes and kLeast lower: with
  // kLeast added, they are the upper bits of a float32 as well.
  static constexpr std::int32_t kLower = 8;

  // The value of a code where the scale is 1.
  static constexpr float value(std::uint32_t code) {
    const auto c = static_cast<std::int32_t>(code);
    const bool low = c < kLower;
    const float above = std::bit_cast<float>((c + (low ? kShift + kLower : kShift)) << 20);
    return low ? above - kLeast : above;
  }
  // One of the two codes around a magnitude, in units of the scale.
  static constexpr std::uint32_t of(float magnitude, std::uint32_t random) {
    const bool low = magnitude < kLeast;
    const float above = low ? magnitude + kLeast : magnitude;
    const auto upper =
        static_cast<std::int32_t>((std::bit_cast<std::uint32_t>(above) + (random << 4)) >> 20);
    const std::int32_t code = upper - (low ? kShift + kLower : kShift);
    return static_cast<std::uint32_t>(code < kLast ? code : kLast);
  }
};

// Values that share a scale.
inline constexpr std::int64_t kMomentBlock = 256;
constexpr std::int64_t moment_blocks(std::int64_t elements) {
  return (elements + kMomentBlock - 1) / kMomentBlock;
}

// The scale of a block by its largest magnitude: the power of two whose codes reach just beyond it.
// Only the first octaves of what lies far below depend on it. Zero for blocks below 2^-90, of which
// nothing is kept.
constexpr float moment_scale(float largest) {
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(largest) + 0x000fffffu) >> 23;
  if (exponent < 127 - 90) return 0;
  return std::bit_cast<float>((exponent < 253 ? exponent : 253) << 23);
}
constexpr float inverse_moment_scale(float scale) {
  return scale == 0 ? 0 : std::bit_cast<float>((254u << 23) - std::bit_cast<std::uint32_t>(scale));
}

struct FirstMoment {
  static constexpr float value(std::uint8_t code, float scale) {
    const float magnitude = MomentCode<7>::value(code & 0x7fu) * scale;
    return (code & 0x80u) != 0 ? -magnitude : magnitude;
  }
  template <class Code = MomentCode<7>>
  static constexpr std::uint8_t code(float value, float inverse_scale, std::uint32_t random) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu) * inverse_scale;
    return static_cast<std::uint8_t>((bits >> 31 << 7) | Code::of(magnitude, random));
  }
};

// Never rounded to zero: an update divides by its root.
struct SecondMoment {
  static constexpr float value(std::uint8_t code, float scale) {
    return MomentCode<8>::value(code) * scale;
  }
  template <class Code = MomentCode<8>>
  static constexpr std::uint8_t code(float value, float inverse_scale, std::uint32_t random) {
    constexpr float kStep = MomentCode<8>::kLeast / 8;
    const float magnitude = value * inverse_scale, least = value > 0 ? kStep : 0;
    return static_cast<std::uint8_t>(Code::of(magnitude > least ? magnitude : least, random));
  }
};

}  // namespace quintet
