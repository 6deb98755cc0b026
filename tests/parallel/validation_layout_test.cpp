// Validation under layouts: the figures of a checkpoint are the same under each, by language too;
// and under none does training notice it.
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/parallel/world.h"
#include "tests/support/temporary_folder.h"
#include "train/evaluate.h"
#include "train/trainer.h"

namespace quintet {
namespace {

struct ValidatedLayout {
  std::int32_t ranks = 1;
  std::int64_t micro_batch = 4, tp = 1, pp = 1, zero = 0;
  std::int64_t accumulate = 1;
  const char* schedule = "1f1b";
  std::int64_t interleave = 1, shard_group = 0;
};

RunConfig run_of(const ValidatedLayout& c) {
  RunConfig config;
  config.batch.micro_batch = c.micro_batch;
  config.batch.accumulate = c.accumulate;
  config.batch.source = 24;
  config.train.threads = 1;
  config.train.steps = 2;
  config.model.dropout = 0.1;
  config.schedule.warmup_steps = 1;
  config.output.log_every = 1000;
  config.parallel.tp = c.tp;
  config.parallel.pp = c.pp;
  config.parallel.zero = c.zero;
  config.parallel.schedule = c.schedule;
  config.parallel.interleave = c.interleave;
  config.parallel.shard_group = c.shard_group;
  config.parallel.whole_below = 200;
  config.validate.batches = 2;
  return config;
}

class ValidationLayouts : public ::testing::TestWithParam<ValidatedLayout> {
 protected:
  // A checkpoint of 16 sequences a step, made by rank 0 alone.
  static void SetUpTestSuite() {
    World& world = testing::test_world();
    std::string made;
    if (world.rank() == 0) {
      folder_ = std::make_unique<TemporaryFolder>();
      RunConfig config = run_of({1, 16});
      config.output.folder = folder_->path().string();
      const auto single = make_single_world();
      const auto trained = train(config, *single);
      EXPECT_TRUE(trained.ok()) << trained.error().message;
      const Path checkpoint = checkpoint_folder(folder_->path()).value();
      expected_ = evaluate(checkpoint, evaluation_config(checkpoint, {}).value(), *single).value();
      made = checkpoint.string();
    }
    checkpoint_ = world.broadcast(made);
  }
  static void TearDownTestSuite() {
    testing::test_world().barrier();
    folder_.reset();
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline ValidationResult expected_;  // on rank 0
  static inline Path checkpoint_;
};

TEST_P(ValidationLayouts, SameFiguresAndAnUndisturbedTraining) {
  const ValidatedLayout& c = GetParam();
  const std::unique_ptr<World> world = make_subworld(testing::test_world(), c.ranks);
  if (world == nullptr) return;
  EvaluationConfig config = evaluation_config(checkpoint_, {}).value();
  RunConfig run = run_of(c);
  config.run.parallel = run.parallel;
  config.run.batch.micro_batch = c.micro_batch;
  config.run.batch.accumulate = c.pp;
  const auto found = evaluate(checkpoint_, config, *world);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().total.sequences, 32);
  if (world->rank() == 0) {
    EXPECT_NEAR(found.value().loss(), expected_.loss(), 1e-6);
    ASSERT_EQ(found.value().languages.size(), expected_.languages.size());
    for (std::size_t i = 0; i < expected_.languages.size(); ++i) {
      EXPECT_EQ(found.value().languages[i].sum.tokens, expected_.languages[i].sum.tokens);
      EXPECT_NEAR(found.value().languages[i].sum.mean(), expected_.languages[i].sum.mean(), 1e-6);
    }
  }
  // The last step's loss has seen everything before it.
  const auto without = train(run, *world);
  run.validate.every = 1;
  const auto with = train(run, *world);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ(with.value().final_loss, without.value().final_loss);
  if (world->rank() == 0) {
    EXPECT_TRUE(with.value().summary.validation_loss.has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ValidationLayouts,
    ::testing::Values(ValidatedLayout{1, 5}, ValidatedLayout{2, 8}, ValidatedLayout{2, 3, 1, 1, 1},
                      ValidatedLayout{4, 4, 1, 1, 2}, ValidatedLayout{4, 7, 1, 1, 3},
                      ValidatedLayout{4, 4, 1, 1, 3, 2, "1f1b", 1, 2}, ValidatedLayout{2, 4, 2},
                      ValidatedLayout{4, 4, 4}, ValidatedLayout{2, 4, 1, 2, 0, 3},
                      ValidatedLayout{2, 4, 1, 2, 0, 2, "interleaved", 2},
                      ValidatedLayout{4, 4, 2, 2, 0, 2}, ValidatedLayout{4, 2, 2, 1, 3},
                      ValidatedLayout{4, 3, 1, 2, 3, 2}, ValidatedLayout{8, 2, 2, 2, 1, 2},
                      ValidatedLayout{8, 2, 2, 2, 3, 2}));

}  // namespace
}  // namespace quintet
