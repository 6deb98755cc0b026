// The running mean of the weights: what it is, that training does not notice it, that it comes back
// from a checkpoint, and that it can be used.
#include <gtest/gtest.h>

#include "base/safetensors.h"
#include "tests/support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/export.h"
#include "train/trainer.h"

namespace quintet {
namespace {

class MeanOfWeights
    : public ::testing::TestWithParam<std::tuple<const char*, const char*, double>> {};

RunConfig mean_run(const Path& folder, std::int64_t steps) {
  RunConfig config;
  config.batch.micro_batch = 2;
  config.batch.source = 24;
  config.train.threads = 1;
  config.train.steps = steps;
  config.schedule.kind = "constant";
  config.schedule.warmup_steps = 0;
  config.schedule.peak = 0.01;
  config.optimizer.ema = 0.75;
  config.output.folder = folder.string();
  config.output.log_every = 1000;
  config.output.save_every = 1;
  config.output.keep = 0;
  config.validate.batches = 2;
  return config;
}

void expect_run(const RunConfig& config) {
  const auto result = train(config, *make_single_world());
  ASSERT_TRUE(result.ok()) << result.error().message;
}

Path step_of(const Path& run, std::int64_t step) {
  return checkpoint_at(run, step).folder;
}

std::vector<float> values_in(const Path& file, const std::string& name, const Shape& of) {
  std::vector<std::int64_t> shape;
  for (int dim = 0; dim < of.rank(); ++dim) shape.push_back(of[dim]);
  return Safetensors::open(file).value().read_float(name, shape).value();
}

TEST_P(MeanOfWeights, IsWhatItsNameSays) {
  const TemporaryFolder folder;
  const auto [optimizer, precision, offload] = GetParam();
  const auto configured = [&, o = optimizer, p = precision, f = offload](const char* name,
                                                                         std::int64_t steps) {
    RunConfig config = mean_run(folder.path() / name, steps);
    config.optimizer.name = o;
    config.train.precision = p;
    if (std::string(p) == "bf16") config.optimizer.master = "remainder";
    config.optimizer.offload = f;
    return config;
  };
  expect_run(configured("with", 3));
  RunConfig without = configured("without", 3);
  without.optimizer.ema = 0;
  expect_run(without);
  RunConfig still = configured("still", 1);
  still.schedule.peak = 0;
  expect_run(still);
  expect_run(configured("parts", 2));
  RunConfig rest = configured("parts", 3);
  rest.output.resume = true;
  expect_run(rest);
  const Path with = folder.path() / "with";
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(step_of(folder.path() / "parts", 3) / file).value(),
              read_file(step_of(with, 3) / file).value());
  }
  EXPECT_EQ(read_file(step_of(folder.path() / "without", 3) / "model.safetensors").value(),
            read_file(step_of(with, 3) / "model.safetensors").value());
  // From the initial weights, step by step.
  for (const Weight& weight : whole_weights(load_model_config("tiny").value())) {
    std::vector<float> mean = values_in(step_of(folder.path() / "still", 1) / "model.safetensors",
                                        weight.name, weight.shape);
    for (const std::int64_t step : {1, 2, 3}) {
      const auto values =
          values_in(step_of(with, step) / "model.safetensors", weight.name, weight.shape);
      const auto found = values_in(step_of(with, step) / "optimizer.safetensors",
                                   weight.name + ".ema", weight.shape);
      for (std::size_t i = 0; i < mean.size(); ++i) {
        mean[i] = 0.75f * mean[i] + 0.25f * values[i];
        ASSERT_NEAR(found[i], mean[i], 1e-6f * std::max(1.0f, std::abs(mean[i])))
            << weight.name << " " << i;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, MeanOfWeights,
                         ::testing::Values(std::tuple{"adamw", "fp32", 0.0},
                                           std::tuple{"adamw", "bf16", 1.0},
                                           std::tuple{"adafactor", "bf16", 1.0},
                                           std::tuple{"adafactor", "fp32", 0.0}));

TEST(MeanOfWeights, CanBeEvaluatedAndExported) {
  const TemporaryFolder folder;
  expect_run(mean_run(folder.path() / "run", 3));
  const Path checkpoint = step_of(folder.path() / "run", 3);
  EvaluationConfig config = evaluation_config(checkpoint, {}).value();
  const auto world = make_single_world();
  const double last = evaluate(checkpoint, config, *world).value().loss();
  config.mean = true;
  const auto mean = evaluate(checkpoint, config, *world);
  ASSERT_TRUE(mean.ok()) << mean.error().message;
  EXPECT_NE(mean.value().loss(), last);
  ExportOptions options;
  options.checkpoint = checkpoint;
  options.output = folder.path() / "exported";
  options.ema = true;
  const auto exported = export_model(options);
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  const Weight weight = whole_weights(load_model_config("tiny").value()).front();
  EXPECT_EQ(values_in(options.output / "model.safetensors", weight.name, weight.shape),
            values_in(checkpoint / "optimizer.safetensors", weight.name + ".ema", weight.shape));
  // A run without has none to offer, and cannot be resumed with one.
  RunConfig without = mean_run(folder.path() / "without", 1);
  without.optimizer.ema = 0;
  expect_run(without);
  const auto none = evaluate(step_of(folder.path() / "without", 1), config, *world);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("optimizer.ema"), std::string::npos);
  without.optimizer.ema = 0.5;
  without.train.steps = 2;
  without.output.resume = without.output.resume_changed = true;
  const auto refused = train(without, *world);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(".ema"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace quintet
