#include "base/philox.h"

#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace quintet {
namespace {

// The published known answers of Philox4x32-10 (Random123's kat_vectors).
TEST(Philox, MatchesThePublishedVectors) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BelowIsUniform) {
  constexpr std::uint32_t kBound = 7;
  constexpr int kDraws = 70000;
  PhiloxSequence random(3, 5);
  std::vector<int> counts(kBound, 0);
  for (int i = 0; i < kDraws; ++i) ++counts[random.below(kBound)];
  double chi_square = 0;
  for (const int count : counts) {
    const double expected = kDraws / static_cast<double>(kBound);
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_square, 22.5);  // 6 degrees of freedom, one in a thousand
}

TEST(Philox, StreamsOfNamesDiffer) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 10000; ++i) seen.insert(stream_of("encoder.block." + std::to_string(i)));
  EXPECT_EQ(seen.size(), 10000u);
}

}  // namespace
}  // namespace quintet
