// The gradient noise scale on made-up gradients, where it is known, and in a step's program.
#include "train/noise_scale.h"

#include <cmath>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/philox.h"
#include "tests/support/temporary_folder.h"
#include "train/feed.h"
#include "train/model_state.h"
#include "train/trainer.h"

namespace quintet {
namespace {

// Gradients of single sequences: a fixed vector, and normal noise whose size differs from element
// to element.
struct MadeUp {
  static constexpr std::size_t kSize = 50;
  PhiloxSequence random;
  double strength = 1;

  double gradient(std::size_t i) const { return strength * (i % 3 == 0 ? 0.2 : 0.05); }
  static double deviation(std::size_t i) { return i % 2 == 0 ? 0.5 : 1.5; }
  double square() const {
    double sum = 0;
    for (std::size_t i = 0; i < kSize; ++i) sum += gradient(i) * gradient(i);
    return sum;
  }
  static double trace() {
    double sum = 0;
    for (std::size_t i = 0; i < kSize; ++i) sum += deviation(i) * deviation(i);
    return sum;
  }
  double normal() {
    const double u = random.uniform() + 0x1p-33, angle = 2 * M_PI * random.uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }
  // The mean gradients of `count` batches, and the squared norms: their mean, that of their mean.
  std::pair<double, double> squares(int count, int batch) {
    std::vector<double> all(kSize, 0);
    double small = 0;
    for (int b = 0; b < count; ++b) {
      for (std::size_t i = 0; i < kSize; ++i) {
        const double g = gradient(i) + deviation(i) * normal() / std::sqrt(batch);
        small += g * g / count;
        all[i] += g / count;
      }
    }
    double large = 0;
    for (const double g : all) large += g * g;
    return {small, large};
  }
};

TEST(NoiseScale, IsThatOfTheProblem) {
  for (const double strength : {1.0, 3.0}) {
    for (const auto& [count, batch] : {std::pair{2, 16}, {8, 4}, {4, 64}}) {
      MadeUp problem{PhiloxSequence(1, static_cast<std::uint64_t>(count)), strength};
      NoiseScale noise(batch, count * batch);
      double mean = 0;
      constexpr int kSteps = 3000;
      for (int step = 0; step < kSteps; ++step) {
        const auto [small, large] = problem.squares(count, batch);
        noise.add(small, large);
        if (step >= 500) mean += noise.value().value_or(NAN) / (kSteps - 500);
      }
      const double truth = MadeUp::trace() / problem.square();
      EXPECT_NEAR(mean, truth, 0.1 * truth) << strength << " " << count << " x " << batch;
    }
  }
}

// Single steps' estimates are right on average: no smoothing, no division.
TEST(NoiseScale, PartsAreWithoutBias) {
  MadeUp problem{PhiloxSequence(5, 5)};
  double square = 0, trace = 0;
  constexpr int kDraws = 20000;
  for (int draw = 0; draw < kDraws; ++draw) {
    NoiseScale noise(8, 32);
    const auto [small, large] = problem.squares(4, 8);
    noise.add(small, large);
    square += noise.averages().square / noise.averages().weight / kDraws;
    trace += noise.averages().trace / noise.averages().weight / kDraws;
  }
  EXPECT_NEAR(square, problem.square(), 0.03 * problem.square());
  EXPECT_NEAR(trace, MadeUp::trace(), 0.01 * MadeUp::trace());
}

TEST(NoiseScale, SaysNothingWhereThereIsNothing) {
  NoiseScale noise(4, 8);
  EXPECT_FALSE(noise.value().has_value());
  noise.add(NAN, 1);
  noise.add(1, INFINITY);
  EXPECT_FALSE(noise.value().has_value());
  noise.add(8, 1);  // the gradient's square would be below zero
  EXPECT_FALSE(noise.value().has_value());
  // Without noise: all batches have the same gradient.
  NoiseScale still(4, 8);
  still.add(2, 2);
  EXPECT_EQ(still.value(), 0);
  // Goes on from where it was.
  NoiseScale whole(4, 8), first(4, 8);
  whole.add(3, 2);
  first.add(3, 2);
  NoiseScale second(4, 8, first.averages());
  whole.add(5, 3);
  second.add(5, 3);
  EXPECT_EQ(second.value(), whole.value());
}

// What the program calls the first micro-batch's is the gradient of that micro-batch alone.
TEST(NoiseScale, TheFirstMicroBatchIsMeasuredByItself) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    StepOptions options;
    options.model = preset("tiny").value();
    options.model.d_ff = 101;  // gaps between weights
    options.batch = {2, 9, 5, false};
    options.options.dtype = options.options.grad_dtype = dtype;
    options.target.threads = 1;
    std::vector<Batch> batches(3);
    PhiloxSequence random(4, 4);
    for (Batch& batch : batches) {
      batch.resize(2, 9, 5);
      for (auto* ids : {&batch.source, &batch.labels})
        for (std::int32_t& id : *ids) id = static_cast<std::int32_t>(random.below(512));
      shift_right(batch.labels, 5, 0, 0, batch.target);
    }
    const auto world = make_single_world();
    const auto run = [&](std::int32_t accumulate, bool noise) {
      options.accumulate = accumulate;
      options.noise = noise;
      const Program program = compile_step(options);
      const auto executor = make_cpu_executor(program, *world).value();
      ModelState state(*executor, *world, options.model);
      state.initialise(1);
      for (std::int32_t m = 0; m < accumulate; ++m)
        EXPECT_TRUE(feed(*executor, m, batches[static_cast<std::size_t>(m)], options).ok());
      return run_step(*executor, 1, 1e-3).value();
    };
    const StepResult all = run(3, true), plain = run(3, false), first = run(1, false);
    EXPECT_EQ(all.grad_norm, plain.grad_norm);
    EXPECT_EQ(plain.micro_square, 0);
    const double expected = first.grad_norm * first.grad_norm / 9;  // a third of the labels
    EXPECT_NEAR(all.micro_square, expected, (dtype == DType::kF32 ? 1e-5 : 1e-2) * expected);
  }
}

TEST(NoiseScale, IsReportedAndGoesOnAfterAResume) {
  const TemporaryFolder folder;
  const auto run = [&](const char* name, std::int64_t steps, bool noise, bool resume) {
    RunConfig config;
    config.batch.micro_batch = 2;
    config.batch.accumulate = 4;
    config.batch.source = 24;
    config.train.threads = 1;
    config.train.steps = steps;
    config.train.noise_scale = noise;
    config.schedule.kind = "constant";
    config.output.folder = (folder.path() / name).string();
    config.output.log_every = 1000;
    config.output.tensorboard = true;
    config.output.resume = resume;
    const auto result = train(config, *make_single_world());
    EXPECT_TRUE(result.ok()) << result.error().message;
  };
  const auto lines = [&](const char* name) {
    std::vector<Json> all;
    std::ifstream file((folder.path() / name / "metrics.jsonl").string());
    for (std::string line; std::getline(file, line);) all.push_back(parse_json(line, name).value());
    return all;
  };
  run("whole", 6, true, false);
  run("parts", 3, true, false);
  run("parts", 6, true, true);
  run("without", 6, false, false);
  const auto whole = lines("whole"), parts = lines("parts"), without = lines("without");
  ASSERT_EQ(whole.size(), 6U);
  ASSERT_EQ(parts.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(whole[i]["loss"], without[i]["loss"]);
    EXPECT_FALSE(without[i].contains("gradient_noise_scale"));
    ASSERT_TRUE(whole[i].contains("gradient_noise_scale")) << i;
    EXPECT_EQ(whole[i]["gradient_noise_scale"], parts[i]["gradient_noise_scale"]) << i;
    EXPECT_GT(number_in(whole[i], "gradient_noise_scale", -1), 0);
  }
}

TEST(NoiseScale, NeedsTwoMicroBatchesAndNoPipeline) {
  RunConfig config;
  config.train.noise_scale = true;
  const auto one = step_options(config, 1);
  ASSERT_FALSE(one.ok());
  EXPECT_NE(one.error().message.find("batch.accumulate = 2"), std::string::npos);
  EXPECT_TRUE(step_options(config, 2).ok());
  config.batch.accumulate = 2;
  EXPECT_TRUE(step_options(config, 1).ok());
  config.parallel.pp = 2;
  const auto stages = step_options(config, 2);
  ASSERT_FALSE(stages.ok());
  EXPECT_NE(stages.error().message.find("parallel.pp = 2"), std::string::npos);
}

}  // namespace
}  // namespace quintet
