#include "optim/decay_table.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

TEST(DecayTable, Patterns) {
  for (const auto& [pattern, name] : {std::pair{"a.b", "a.b"},
                                      {"*", ""},
                                      {"*", "abc"},
                                      {"a*", "a"},
                                      {"*c", "abc"},
                                      {"a*c", "abbbc"},
                                      {"*b*", "abc"},
                                      {"a*b*c", "axbbxbc"},
                                      {"**a", "ba"},
                                      {"*ab", "aab"}}) {
    EXPECT_TRUE(matches(pattern, name)) << pattern << " " << name;
  }
  for (const auto& [pattern, name] : {std::pair{"", "a"},
                                      {"a", ""},
                                      {"a", "ab"},
                                      {"a*", "ba"},
                                      {"*b", "abc"},
                                      {"a*b*c", "acb"},
                                      {"a.b", "a_b"},
                                      {"A", "a"}}) {
    EXPECT_FALSE(matches(pattern, name)) << pattern << " " << name;
  }
}

TEST(DecayTable, TheFirstThatMatchesDecides) {
  const auto table = DecayTable::create(0.1, {"*norm*=0", "encoder.*=0.2", "*=1e-2"}).value();
  EXPECT_EQ(table.of("encoder.norm"), 0);
  EXPECT_EQ(table.of("encoder.q"), 0.2);
  EXPECT_EQ(table.of("decoder.q"), 0.01);
  EXPECT_EQ(DecayTable::create(0.1, {"x=0"}).value().of("y"), 0.1);
  EXPECT_EQ(table.unused({"encoder.norm", "encoder.q"}), nullptr);
  ASSERT_NE(table.unused({"decoder.norm"}), nullptr);
  EXPECT_EQ(*table.unused({"decoder.norm"}), "encoder.*");
}

TEST(DecayTable, RefusesWhatIsNone) {
  for (const char* bad : {"", "norm", "=0", "a=", "a=b", "a=-1", "a=2", "a=0x", "a=nan", "a=0 "}) {
    const auto table = DecayTable::create(0, {bad});
    ASSERT_FALSE(table.ok()) << bad;
    EXPECT_EQ(table.error().code, ErrorCode::kUsage);
  }
}

}  // namespace
}  // namespace quintet
