// Batches that grow during a run.
#include "train/batch_ramp.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/support/training.h"

namespace quintet {
namespace {

using testing::metrics_of;
using testing::train_alone;

RunConfig ramped(const Path& folder, std::vector<std::string> ramp) {
  RunConfig config;
  config.batch.micro_batch = 2;
  config.batch.global = 8;
  config.batch.ramp = std::move(ramp);
  config.batch.source = 24;
  config.train.steps = 9;
  config.train.threads = 1;
  config.schedule.warmup_steps = 3;
  config.output.folder = folder.string();
  config.output.log_every = 1000;
  config.output.keep = 100;
  return config;
}

void expect_same(const Path& a, const Path& b) {
  const auto one = metrics_of(a), other = metrics_of(b);
  ASSERT_EQ(one.size(), 9u);
  ASSERT_EQ(other.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "samples"})
      EXPECT_EQ(one[i].at(key), other[i].at(key)) << key << " of step " << i + 1;
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const Path name = Path("checkpoints/step-00000009") / file;
    EXPECT_TRUE(read_file(a / name).value() == read_file(b / name).value()) << file;
  }
}

// A ramp is what three runs with batches of their own sizes are, one after the other.
TEST(BatchRamp, IsRunsOfEachSizeInARow) {
  const TemporaryFolder folder;
  const Path whole = folder.path() / "whole", parts = folder.path() / "parts";
  const auto trained = train_alone(ramped(whole, {"3=2", "5=4"}));
  ASSERT_TRUE(trained.ok()) << trained.error().message;
  EXPECT_EQ(trained.value().steps, 9);
  EXPECT_FALSE(trained.value().was_done);
  const auto metrics = metrics_of(whole);
  ASSERT_EQ(metrics.size(), 9u);
  EXPECT_EQ(metrics[2].at("samples"), 6);
  EXPECT_EQ(metrics[4].at("samples"), 14);
  EXPECT_EQ(metrics[8].at("samples"), 46);

  for (const auto& [stop, global] : {std::pair{3, 2}, {5, 4}, {9, 8}}) {
    RunConfig part = ramped(parts, {});
    part.batch.global = global;
    part.train.stop_after = stop;
    part.output.resume = part.output.resume_changed = true;
    ASSERT_TRUE(train_alone(part).ok());
  }
  expect_same(whole, parts);
}

// Wherever it stops, it goes on with the size that is due; also where the newest checkpoint is
// damaged and an older one belongs to another size.
TEST(BatchRamp, ResumesAnywhere) {
  const TemporaryFolder folder;
  const Path whole = folder.path() / "whole";
  ASSERT_TRUE(train_alone(ramped(whole, {"3=2", "5=4"})).ok());
  for (const int stop : {1, 3, 4, 6}) {
    const Path parts = folder.path() / std::to_string(stop);
    RunConfig part = ramped(parts, {"3=2", "5=4"});
    part.output.save_every = 2;
    part.train.stop_after = stop;
    ASSERT_TRUE(train_alone(part).ok());
    part.train.stop_after = 0;
    part.output.resume = true;
    if (stop == 4) {  // what is left is of step 3 or before
      const Path file = parts / "checkpoints/step-00000004/model.safetensors";
      std::string bytes = read_file(file).value();
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
      ASSERT_TRUE(write_file(file, bytes).ok());
    }
    const auto resumed = train_alone(part);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    expect_same(whole, parts);
    EXPECT_TRUE(train_alone(part).value().was_done);
  }
  RunConfig other = ramped(whole, {"4=2", "5=4"});
  other.output.resume = true;
  const auto refused = train_alone(other);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("batch.ramp"), std::string::npos);
}

TEST(BatchRamp, WhatCannotBeIsRefused) {
  const TemporaryFolder folder;
  const auto refuses = [&](RunConfig config, const std::string& says) {
    const auto options = step_options(config, 1);
    ASSERT_FALSE(options.ok()) << says;
    EXPECT_EQ(options.error().code, ErrorCode::kUsage);
    EXPECT_NE(options.error().message.find(says), std::string::npos) << options.error().message;
  };
  for (const char* entry : {"3", "=4", "3=", "3=4x", "x=4", "0=4", "3=0", "-1=4"})
    refuses(ramped(folder.path(), {entry}), std::string("\"") + entry + "\": expected a step");
  refuses(ramped(folder.path(), {"3=2", "3=4"}), "steps must grow");
  refuses(ramped(folder.path(), {"3=3"}), "from step 1 on: batch.global = 3 is not a multiple");
  RunConfig config = ramped(folder.path(), {"3=2"});
  config.batch.global = 0;
  refuses(config, "without batch.global");
  config = ramped("", {"3=2"});
  refuses(config, "set output.folder");
  config = ramped(folder.path(), {"3=2"});
  config.train.skip_batches = "4";
  refuses(config, "train.skip_batches");
  // Longer than the run: only what it reaches.
  config = ramped(folder.path(), {"4=2", "100=4", "200=6"});
  const auto phases = batch_phases(config).value();
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[1].first_step, 5);
  EXPECT_EQ(phases[1].last_step, 9);
  EXPECT_EQ(phases[1].global, 4);
  EXPECT_EQ(phase_after(phases, 0).global, 2);
  EXPECT_EQ(phase_after(phases, 4).global, 4);
  EXPECT_EQ(phase_after(phases, 9).global, 4);
}

}  // namespace
}  // namespace quintet
