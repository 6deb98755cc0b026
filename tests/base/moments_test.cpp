// Moments in bf16 and in eight bits, against what the header says of them in float64 and by brute
// force.
#include "base/moments.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/bf16.h"
#include "base/philox.h"

namespace quintet {
namespace {

// The values of all codes in units of the scale, by the formula.
std::vector<double> values_of(int bits) {
  const int e = (1 << (bits - 3)) - 2;
  std::vector<double> values;
  for (int c = 0; c < 1 << bits; ++c) {
    values.push_back(c < 8 ? c / 8.0 * std::ldexp(1, -e)
                           : (1 + c % 8 / 8.0) * std::ldexp(1, c / 8 - 1 - e));
  }
  return values;
}

// Magnitudes over all octaves that codes have, and some below.
std::vector<float> magnitudes(int count, int octaves) {
  PhiloxSequence random(1, 2);
  std::vector<float> values = {0};
  for (int i = 0; i < count; ++i)
    values.push_back(static_cast<float>(1.875 * std::exp2(-octaves * random.uniform())));
  return values;
}

template <int kBits>
void expect_codes() {
  const std::vector<double> values = values_of(kBits);
  ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
  EXPECT_EQ(values.back(), 1.875);
  for (std::uint32_t c = 0; c < values.size(); ++c) {
    EXPECT_EQ(static_cast<double>(MomentCode<kBits>::value(c)), values[c]);
    // What can be held stays, whatever the random bits.
    for (const std::uint32_t random : {0u, 1u, kToNearest, 0xffffu})
      EXPECT_EQ(MomentCode<kBits>::of(static_cast<float>(values[c]), random), c);
  }
  for (const float x : magnitudes(20000, (1 << (kBits - 3)) + 6)) {
    const auto exact = static_cast<double>(x);
    // The nearest of all codes.
    const double got = values[MomentCode<kBits>::of(x, kToNearest)];
    double best = INFINITY;
    for (const double value : values) best = std::min(best, std::abs(value - exact));
    EXPECT_LE(std::abs(got - exact), best * (1 + 1e-6)) << x;
    // The code below, up to a threshold of the random bits that makes the mean come out right.
    const auto above = static_cast<std::size_t>(
        std::upper_bound(values.begin(), values.end() - 1, exact) - values.begin());
    const double share = (exact - values[above - 1]) / (values[above] - values[above - 1]);
    const auto ups = [&](std::uint32_t random) {
      const std::size_t code = MomentCode<kBits>::of(x, random);
      EXPECT_TRUE(code == above - 1 || code == above) << x << ": " << code;
      return code == above;
    };
    std::uint32_t low = 0, high = 0x10000;  // from `high` on it is rounded up
    while (low < high) {
      const std::uint32_t middle = (low + high) / 2;
      ups(middle) ? high = middle : low = middle + 1;
    }
    EXPECT_NEAR((0x10000 - high) / 65536.0, share, 2.0 / 65536) << x;
  }
}

TEST(MomentCodes, SevenBitsAreTheNearestOrBothAround) {
  expect_codes<7>();
}
TEST(MomentCodes, EightBitsAreTheNearestOrBothAround) {
  expect_codes<8>();
}

TEST(MomentCodes, ScalesReachJustBeyondTheLargest) {
  PhiloxSequence random(1, 3);
  for (int i = 0; i < 10000; ++i) {
    const auto largest = static_cast<float>(std::exp2(-80 + 200 * random.uniform()));
    const float scale = moment_scale(largest);
    EXPECT_EQ(std::exp2(std::round(std::log2(static_cast<double>(scale)))), scale);
    EXPECT_EQ(scale * inverse_moment_scale(scale), 1);
    EXPECT_LE(largest, 1.875f * scale);
    EXPECT_GT(largest, 0.9374f * scale);
  }
  EXPECT_EQ(moment_scale(0), 0);
  EXPECT_EQ(moment_scale(0x1p-91f), 0);
  EXPECT_EQ(inverse_moment_scale(0), 0);
  // No number is too large: what is beyond the codes becomes the last of them.
  for (const float largest : {3e38f, INFINITY}) {
    const float scale = moment_scale(largest);
    EXPECT_EQ(
        SecondMoment::value(SecondMoment::code(largest, inverse_moment_scale(scale), 0), scale),
        1.875f * scale);
  }
}

// Blocks that were coded once are coded again as they are, with any random bits and with other
// neighbours of no larger size.
template <class Moment>
void expect_stable(bool is_signed) {
  PhiloxSequence random(1, 4);
  for (int round = 0; round < 200; ++round) {
    const double size = std::exp2(-60 + 100 * random.uniform());
    std::vector<float> block(64);
    for (float& x : block) {
      x = static_cast<float>(size * std::exp2(-40 * random.uniform()));
      if (is_signed && random.below(2) == 1) x = -x;
    }
    const auto coded = [&](std::vector<float> values, bool nearest) {
      float largest = 0;
      for (const float x : values) largest = std::max(largest, std::abs(x));
      const float scale = moment_scale(largest);
      for (float& x : values) {
        x = Moment::value(Moment::code(x, inverse_moment_scale(scale),
                                       nearest ? kToNearest : random.below(65536)),
                          scale);
      }
      return values;
    };
    const std::vector<float> once = coded(block, round % 2 == 0);
    EXPECT_EQ(coded(once, true), once);
    EXPECT_EQ(coded(once, false), once);
    const std::vector<float> part(once.begin() + 10, once.begin() + 30);
    EXPECT_EQ(coded(part, true), part);
  }
}

TEST(MomentCodes, WhatWasCodedStays) {
  expect_stable<FirstMoment>(true);
  expect_stable<SecondMoment>(false);
}

TEST(MomentCodes, KeepTheSignAndNeverLoseASecondMoment) {
  for (const float x : {1.0f, 0.3f, 1e-3f}) {
    EXPECT_EQ(FirstMoment::value(FirstMoment::code(-x, 1, 77), 1),
              -FirstMoment::value(FirstMoment::code(x, 1, 77), 1));
  }
  EXPECT_EQ(FirstMoment::code(1e-9f, 1, 0), 0);
  EXPECT_EQ(SecondMoment::code(0, 1, 0xffff), 0);
  EXPECT_EQ(SecondMoment::code(1e-30f, 1, 0), 1);
}

TEST(MomentsInBf16, AreTheTwoAroundAValueInTheRightShare) {
  PhiloxSequence random(1, 5);
  for (int i = 0; i < 2000; ++i) {
    const auto x = static_cast<float>((random.uniform() - 0.5) * std::exp2(40 * random.uniform()));
    bf16 toward_zero, away;
    toward_zero.bits = rounded_to_bf16(x, 0);
    away.bits = static_cast<std::uint16_t>(toward_zero.bits + 1);
    const double low = static_cast<double>(static_cast<float>(toward_zero)),
                 high = static_cast<double>(static_cast<float>(away));
    ASSERT_LE(std::abs(low), std::abs(static_cast<double>(x)));
    ASSERT_GT(std::abs(high), std::abs(static_cast<double>(x)));
    const double share = (static_cast<double>(x) - low) / (high - low);
    const auto up = static_cast<std::uint32_t>(std::lround(share * 65536));
    if (up > 0) {
      EXPECT_EQ(rounded_to_bf16(x, 65536 - up), away.bits);
    }
    if (up < 65536) {
      EXPECT_EQ(rounded_to_bf16(x, 65535 - up), toward_zero.bits);
    }
    EXPECT_EQ(rounded_to_bf16(static_cast<float>(toward_zero), 0xffff), toward_zero.bits);
  }
}

}  // namespace
}  // namespace quintet
