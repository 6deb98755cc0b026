#include "base/text.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

TEST(Text, NumbersReadWell) {
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(149.0 * 1024 * 1024 * 1024), "149.00 GiB");
  EXPECT_EQ(human_count(582401280), "582.4 M");
  EXPECT_EQ(with_commas(12921057280), "12,921,057,280");
  EXPECT_EQ(with_commas(-1000), "-1,000");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(human_duration(59.4), "59 s");
  EXPECT_EQ(human_duration(200), "3 min 20 s");
  EXPECT_EQ(human_duration(3720), "1 h 02 min");
}

TEST(Text, NearestFindsSlipsAndNothingElse) {
  const std::vector<std::string> words = {"train.steps", "train.seed", "optimizer.beta1"};
  EXPECT_EQ(nearest("train.step", words), "train.steps");
  EXPECT_EQ(nearest("optimiser.beta1", words), "optimizer.beta1");
  EXPECT_EQ(nearest("something.else.entirely", words), "");
}

}  // namespace
}  // namespace quintet
