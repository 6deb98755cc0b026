// The example that users run first learns what there is to learn: within 10 % of the loss that
// nobody can beat.
#include <gtest/gtest.h>

#include "train/trainer.h"

namespace quintet {
namespace {

TEST(Learning, TinyReachesTheOptimumOfTheSyntheticCorpus) {
  const auto config =
      load_run_config(QUINTET_SOURCE_DIR "/examples/tiny.toml", {"train.threads=1"});
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto result = train(config.value(), *make_single_world());
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_GT(result.value().optimal_loss, 0.5);
  EXPECT_LE(result.value().final_loss, 1.10 * result.value().optimal_loss);
  // Below the optimum would mean that the optimum is computed wrongly.
  EXPECT_GE(result.value().final_loss, 0.98 * result.value().optimal_loss);
}

}  // namespace
}  // namespace quintet
