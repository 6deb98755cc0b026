#include "optim/learning_rate.h"

#include <cmath>

#include <gtest/gtest.h>

namespace quintet {
namespace {

TEST(LearningRate, TheScheduleOfT5) {
  const LearningRateConfig config{"inverse_sqrt", "constant", 0.01, 10000, 0};
  for (const std::int64_t step : {1, 100, 10000, 10001, 250000, 1000000}) {
    EXPECT_NEAR(learning_rate(config, step, 1000000),
                1 / std::sqrt(std::max<double>(static_cast<double>(step), 1e4)), 1e-12);
  }
}

TEST(LearningRate, WarmUpRisesToThePeak) {
  for (const char* kind : {"inverse_sqrt", "linear", "cosine", "constant"}) {
    const LearningRateConfig config{kind, "linear", 0.5, 100, 0.1};
    EXPECT_NEAR(learning_rate(config, 1, 1000), 0.005, 1e-12);
    EXPECT_NEAR(learning_rate(config, 50, 1000), 0.25, 1e-12);
    EXPECT_NEAR(learning_rate(config, 100, 1000), 0.5, 1e-12);
    for (std::int64_t step = 101; step <= 1000; ++step) {
      EXPECT_LE(learning_rate(config, step, 1000), learning_rate(config, step - 1, 1000) + 1e-15);
    }
  }
}

TEST(LearningRate, WarmUpStableDecay) {
  LearningRateConfig config{"wsd", "linear", 0.5, 100, 0.1, 200, "linear"};
  EXPECT_NEAR(learning_rate(config, 50, 1000), 0.25, 1e-12);
  for (const std::int64_t step : {100, 101, 400, 799, 800})
    EXPECT_NEAR(learning_rate(config, step, 1000), 0.5, 1e-12) << step;
  EXPECT_NEAR(learning_rate(config, 900, 1000), 0.5 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(learning_rate(config, 1000, 1000), 0.05, 1e-12);
  // A longer run has a longer plateau and the same decay.
  EXPECT_NEAR(learning_rate(config, 1800, 2000), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(config, 1900, 2000), 0.275, 1e-12);
  config.decay_shape = "cosine";
  EXPECT_NEAR(learning_rate(config, 850, 1000), 0.5 * (0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))),
              1e-12);
  config.decay_shape = "sqrt";
  EXPECT_NEAR(learning_rate(config, 850, 1000), 0.5 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(learning_rate(config, 1000, 1000), 0.05, 1e-12);
  // Of no length given, a tenth of the run.
  config = {"wsd", "linear", 0.5, 0, 0, 0, "linear"};
  EXPECT_NEAR(learning_rate(config, 900, 1000), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(config, 950, 1000), 0.25, 1e-12);
}

TEST(LearningRate, RefusesWhatDoesNotFit) {
  LearningRateConfig config{"wsd", "linear", 0.5, 100, 0.1, 900, "linear"};
  EXPECT_TRUE(validate(config, 1000).ok());
  EXPECT_FALSE(validate(config, 999).ok());
  config.kind = "cosine";
  EXPECT_FALSE(validate(config, 1000).ok());
  config.decay_steps = 0;
  EXPECT_TRUE(validate(config, 1000).ok());
  config.decay_shape = "sqrt";
  EXPECT_FALSE(validate(config, 1000).ok());
}

TEST(LearningRate, EndsWhereItShould) {
  EXPECT_NEAR(learning_rate({"linear", "linear", 0.5, 100, 0.1}, 1000, 1000), 0.05, 1e-12);
  EXPECT_NEAR(learning_rate({"cosine", "linear", 0.5, 100, 0.1}, 1000, 1000), 0.05, 1e-12);
  EXPECT_NEAR(learning_rate({"cosine", "linear", 0.5, 100, 0.1}, 550, 1000), 0.275, 1e-12);
  EXPECT_NEAR(learning_rate({"constant", "linear", 0.5, 0, 0.1}, 1, 1000), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate({"inverse_sqrt", "linear", 0.5, 100, 0}, 400, 1000), 0.25, 1e-12);
}

}  // namespace
}  // namespace quintet
