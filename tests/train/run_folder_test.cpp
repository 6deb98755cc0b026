// One run at a time in a folder; a run that is continued is the one that was begun; and what the
// configuration cannot mean is refused.
#include "train/run_folder.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace quintet {
namespace {

RunConfig folder_run(const Path& folder, std::int64_t steps) {
  RunConfig config;
  config.batch.micro_batch = 4;
  config.batch.source = 24;
  config.data.synthetic.languages = 2;
  config.train.steps = steps;
  config.train.threads = 1;
  config.output.folder = folder.string();
  config.output.log_every = 1000;
  return config;
}

Result<TrainResult> train_in_folder(RunConfig config) {
  return train(std::move(config), *make_single_world());
}

TEST(RunFolder, IsForOneRunAtATime) {
  const TemporaryFolder folder;
  {
    const auto first = RunLock::take(folder.path());
    ASSERT_TRUE(first.ok());
    const auto second = train_in_folder(folder_run(folder.path(), 2));
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, ErrorCode::kUsage);
    EXPECT_NE(second.error().message.find("another run is writing there"), std::string::npos);
    EXPECT_NE(second.error().message.find(std::to_string(::getpid())), std::string::npos);
  }
  // A file that a dead process left is none.
  std::ofstream((folder.path() / "lock").string()) << "elsewhere 123\n";
  EXPECT_TRUE(train_in_folder(folder_run(folder.path(), 2)).ok());
}

TEST(RunFolder, AResumedRunIsTheSameRun) {
  const TemporaryFolder folder;
  ASSERT_TRUE(train_in_folder(folder_run(folder.path(), 2)).ok());
  const auto resumed = [&](const auto& change) {
    RunConfig config = folder_run(folder.path(), 2);
    config.output.resume = true;
    change(config);
    return train_in_folder(config);
  };
  const auto refused = [&](const std::string& what, const auto& change) {
    const auto result = resumed(change);
    ASSERT_FALSE(result.ok()) << what;
    EXPECT_EQ(result.error().code, ErrorCode::kUsage);
    EXPECT_NE(result.error().message.find(what), std::string::npos) << result.error().message;
  };
  refused("train.seed = 2 (was 1)", [](RunConfig& c) { c.train.seed = 2; });
  refused("batch.source = 32 (was 24)", [](RunConfig& c) { c.batch.source = 32; });
  refused("optimizer.epsilon = ", [](RunConfig& c) { c.optimizer.epsilon = 1e-3; });
  refused("data.languages = 3 (was 2)", [](RunConfig& c) { c.data.synthetic.languages = 3; });
  refused("model.base_width = 32 (was 0)", [](RunConfig& c) { c.model.base_width = 32; });
  refused("the global batch = 8 (was 4", [](RunConfig& c) { c.batch.accumulate = 2; });
  // These only say how long and how; the last allows the rest.
  EXPECT_TRUE(resumed([](RunConfig& c) {
                c.train.steps = 3;
                c.batch.micro_batch = 2;
                c.batch.global = 4;
                c.output.keep = 5;
              }).ok());
  EXPECT_TRUE(resumed([](RunConfig& c) {
                c.train.steps = 4;
                c.train.seed = 2;
                c.output.resume_changed = true;
              }).ok());
}

// A run that was saved before a key existed did what the key's default does.
TEST(RunFolder, AKeyYoungerThanTheCheckpointWasItsDefault) {
  const Path old = QUINTET_SOURCE_DIR "/tests/train/old_checkpoint";
  const Path saved = checkpoint_at(old, 3).folder;
  ASSERT_EQ(read_file(saved / "run.toml").value().find("base_width"), std::string::npos);
  RunConfig config = load_run_config((saved / "run.toml").string(), {}).value();
  StepOptions options;
  options.batch.micro_batch = config.batch.global > 0 ? config.batch.global : 2;
  config.output.folder = old.string();
  EXPECT_TRUE(check_resumed_config(config, options).ok());
  config.model.base_width = 32;
  const auto refused = check_resumed_config(config, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("model.base_width = 32 (was 0)"), std::string::npos);
}

// A bit that turned over in the newest checkpoint's copy of the configuration is damage of that
// checkpoint, not another run: the one before it is taken.
TEST(RunFolder, ADamagedConfigurationIsADamagedCheckpoint) {
  const std::pair<std::string, std::string> damages[] = {{"seed = 1", "seed = 3"},
                                                         {"[train]", "{train]"}};
  for (const auto& [whole, damaged] : damages) {
    const TemporaryFolder folder;
    RunConfig config = folder_run(folder.path(), 4);
    config.output.save_every = 2;
    config.output.keep = 0;
    ASSERT_TRUE(train_in_folder(config).ok());
    const Path newest = checkpoint_at(folder.path(), 4).folder;
    auto text = read_file(newest / "run.toml");
    ASSERT_TRUE(text.ok());
    const auto at = text.value().find(whole);
    ASSERT_NE(at, std::string::npos) << text.value();
    std::ofstream((newest / "run.toml").string())
        << text.value().replace(at, whole.size(), damaged);
    config.output.resume = true;
    config.train.steps = 5;
    const auto resumed = train_in_folder(config);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message;
    EXPECT_TRUE(std::filesystem::exists(set_aside_path(folder.path(), "damaged", 4)));
  }
}

TEST(RunFolder, AFinishedRunIsLeftAlone) {
  const TemporaryFolder folder;
  ASSERT_TRUE(train_in_folder(folder_run(folder.path(), 3)).ok());
  const std::string summary = read_file(folder.path() / "summary.json").value();
  RunConfig config = folder_run(folder.path(), 3);
  config.output.resume = true;
  const auto again = train_in_folder(config);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again.value().was_done);
  EXPECT_EQ(again.value().steps, 3);
  EXPECT_EQ(read_file(folder.path() / "summary.json").value(), summary);
}

TEST(Configuration, TheGlobalBatchDoesNotDependOnTheRanks) {
  RunConfig config = folder_run("", 1);
  config.batch.global = 32;
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    const auto options = step_options(config, ranks);
    ASSERT_TRUE(options.ok()) << options.error().message;
    EXPECT_EQ(options.value().global_batch(), 32);
    EXPECT_EQ(options.value().accumulate, 8 / ranks);
  }
  const auto odd = step_options(config, 3);
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("batch.global = 32 is not a multiple of 12"),
            std::string::npos);
  config.batch.accumulate = 3;
  EXPECT_FALSE(step_options(config, 1).ok());
}

TEST(Configuration, WhatHasNoEffectOrCannotBeIsRefused) {
  const auto refused = [](const std::string& what, const auto& change) {
    RunConfig config = folder_run("", 1);
    change(config);
    const auto options = step_options(config, 1);
    ASSERT_FALSE(options.ok()) << what;
    EXPECT_EQ(options.error().code, ErrorCode::kUsage);
    EXPECT_NE(options.error().message.find(what), std::string::npos) << options.error().message;
  };
  refused("data.pack has no effect", [](RunConfig& c) { c.data.corpus.pack = true; });
  refused("data.split has no effect", [](RunConfig& c) { c.data.corpus.split = "held_out"; });
  refused("data.objective has no effect",
          [](RunConfig& c) { c.data.corpus.objective.name = "ul2"; });
  refused("at most 2^28", [](RunConfig& c) {
    c.batch.micro_batch = 1 << 20;
    c.batch.source = 1024;
  });
  refused("at most 8192 tokens", [](RunConfig& c) { c.batch.source = 1 << 20; });
  const TemporaryFolder folder;
  const Path model = folder.path() / "config.json";
  T5Config shape = preset("tiny").value();
  shape.decoder_start_id = 2;
  std::ofstream(model.string()) << to_hf_config(shape);
  refused("decoder_start_token_id = 2", [&](RunConfig& c) { c.model.name = model.string(); });
}

}  // namespace
}  // namespace quintet
