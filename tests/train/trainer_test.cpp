#include "train/trainer.h"

#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/safetensors.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/training.h"
#include "train/checkpoint.h"
#include "train/fit.h"

namespace quintet {
namespace {

using testing::metrics_of;
using testing::train_alone;

RunConfig small_run(const Path& folder, std::int64_t steps) {
  RunConfig config;
  config.batch.micro_batch = 4;
  config.batch.source = 24;
  config.data.synthetic.languages = 2;
  config.train.steps = steps;
  config.train.threads = 1;
  config.schedule.warmup_steps = 5;
  config.output.folder = folder.string();
  config.output.log_every = 1000;
  return config;
}

std::string bytes_of(const Path& path) {
  return read_file(path).value();
}

// A run that stops on its way has the schedule of its whole length, validates and saves where it
// stops, and goes on to the same bytes as one in one piece.
TEST(Stops, LeaveTheScheduleAsItIs) {
  const TemporaryFolder folder;
  const auto configured = [&](const char* name, std::int64_t stop) {
    RunConfig config = small_run(folder.path() / name, 12);
    config.schedule.kind = "wsd";
    config.schedule.warmup_steps = 2;
    config.schedule.decay_steps = 4;
    config.validate.every = 12;
    config.validate.sequences = 6;
    config.train.stop_after = stop;
    config.output.resume = true;
    return config;
  };
  ASSERT_TRUE(train_alone(configured("whole", 0)).ok());
  const auto stopped = train_alone(configured("parts", 7));
  ASSERT_TRUE(stopped.ok()) << stopped.error().message;
  EXPECT_EQ(stopped.value().steps, 7);
  const auto half = metrics_of(folder.path() / "parts");
  ASSERT_EQ(half.size(), 7u);
  EXPECT_EQ(half.back().at("validation").at("sequences"), 6);
  EXPECT_EQ(half.back().at("lr"), half[2].at("lr"));  // no decay yet
  EXPECT_TRUE(train_alone(configured("parts", 7)).value().was_done);
  ASSERT_TRUE(train_alone(configured("parts", 100)).ok());
  const auto whole = metrics_of(folder.path() / "whole"),
             parts = metrics_of(folder.path() / "parts");
  ASSERT_EQ(parts.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    for (const char* key : {"step", "loss", "lr", "grad_norm"})
      EXPECT_EQ(whole[i].at(key), parts[i].at(key)) << key << " of step " << i + 1;
  }
  EXPECT_EQ(whole.back().at("validation").at("loss"), parts.back().at("validation").at("loss"));
  EXPECT_LT(whole.back().at("lr"), half.back().at("lr"));
}

class TrainerTest : public ::testing::TestWithParam<
                        std::tuple<const char*, const char*, double, const char*, const char*>> {};

// A run in two parts ends with the same bytes as one without a break: weights, optimizer state and
// metrics.
TEST_P(TrainerTest, ResumesExactly) {
  const TemporaryFolder folder;
  const auto [optimizer, precision, dropout, master, moments] = GetParam();
  const auto configured = [&, o = optimizer, p = precision, d = dropout, m = master,
                           kept = moments](const char* name) {
    RunConfig config = small_run(folder.path() / name, 12);
    config.optimizer.name = o;
    config.train.precision = p;
    config.model.dropout = d;
    config.optimizer.master = m;
    config.optimizer.moments = kept;
    return config;
  };
  ASSERT_TRUE(train_alone(configured("whole")).ok());
  RunConfig first = configured("parts");
  first.output.save_every = 7;
  // Ends at step 9 as if killed there: the checkpoint of step 7 is what is left. The schedule must
  // not know.
  first.train.steps = 9;
  ASSERT_TRUE(train_alone(first).ok());
  std::filesystem::remove_all(folder.path() / "parts/checkpoints/step-00000009");
  RunConfig second = configured("parts");
  second.output.resume = true;
  ASSERT_TRUE(train_alone(second).ok());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json"}) {
    EXPECT_EQ(bytes_of(folder.path() / "parts/checkpoints/step-00000012" / file),
              bytes_of(folder.path() / "whole/checkpoints/step-00000012" / file))
        << file;
  }
  const auto whole = metrics_of(folder.path() / "whole"),
             parts = metrics_of(folder.path() / "parts");
  ASSERT_EQ(parts.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(parts[i]["step"], i + 1);
    EXPECT_EQ(parts[i]["loss"], whole[i]["loss"]);
  }
}
INSTANTIATE_TEST_SUITE_P(All, TrainerTest,
                         ::testing::Values(std::tuple{"adamw", "fp32", 0.0, "fp32", "fp32"},
                                           std::tuple{"adamw", "bf16", 0.1, "fp32", "fp32"},
                                           std::tuple{"adafactor", "fp32", 0.1, "fp32", "fp32"},
                                           std::tuple{"adafactor", "bf16", 0.0, "fp32", "fp32"},
                                           std::tuple{"adamw", "bf16", 0.0, "remainder", "fp32"},
                                           std::tuple{"adafactor", "bf16", 0.1, "remainder",
                                                      "fp32"},
                                           std::tuple{"adamw", "fp32", 0.0, "fp32", "bf16"},
                                           std::tuple{"adamw", "bf16", 0.1, "remainder", "bf16"},
                                           std::tuple{"adamw", "fp32", 0.0, "fp32", "8bit"},
                                           std::tuple{"adamw", "bf16", 0.1, "remainder", "8bit"}));

// Remainders are float32 master weights in half the bytes, and the curve is theirs: the working
// copies differ where a float32 lies exactly between two bf16, nowhere else. One such weight is
// enough to send the bf16 roundings of later steps other ways, hence the bound.
TEST(Trainer, RemaindersTrainAsMasterWeightsDo) {
  for (const char* optimizer : {"adamw", "adafactor"}) {
    const TemporaryFolder folder;
    for (const char* master : {"fp32", "remainder"}) {
      RunConfig config = small_run(folder.path() / master, 30);
      config.optimizer.name = optimizer;
      config.optimizer.master = master;
      config.train.precision = "bf16";
      ASSERT_TRUE(train_alone(config).ok());
    }
    const auto whole = metrics_of(folder.path() / "fp32"),
               split = metrics_of(folder.path() / "remainder");
    ASSERT_EQ(split.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(split[i]["loss"].get<double>(), whole[i]["loss"].get<double>(),
                  4e-3 * whole[i]["loss"].get<double>());
    }
  }
}

// Where the optimizer's state lives changes no bit of the weights, nor of the state; and a run may
// go on with it elsewhere.
TEST(Trainer, OffloadingChangesNothing) {
  for (const auto& [optimizer, master, moments] : {std::tuple{"adamw", "fp32", "fp32"},
                                                   {"adamw", "remainder", "fp32"},
                                                   {"adamw", "fp32", "bf16"},
                                                   {"adamw", "remainder", "8bit"},
                                                   {"adafactor", "remainder", "fp32"}}) {
    const TemporaryFolder folder;
    const auto configured = [&, o = optimizer, m = master, kept = moments](const char* name,
                                                                           double share) {
      RunConfig config = small_run(folder.path() / name, 6);
      config.train.precision = "bf16";
      config.optimizer.name = o;
      config.optimizer.master = m;
      config.optimizer.moments = kept;
      config.optimizer.offload = share;
      return config;
    };
    ASSERT_TRUE(train_alone(configured("here", 0)).ok());
    ASSERT_TRUE(train_alone(configured("away", 1)).ok());
    RunConfig first = configured("moved", 0.4);
    first.train.steps = 3;
    ASSERT_TRUE(train_alone(first).ok());
    RunConfig second = configured("moved", 0.7);
    second.output.resume = true;
    ASSERT_TRUE(train_alone(second).ok());
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const Path place = Path("checkpoints/step-00000006") / file;
      const std::string here = bytes_of(folder.path() / "here" / place);
      EXPECT_EQ(bytes_of(folder.path() / "away" / place), here) << optimizer << " " << file;
      EXPECT_EQ(bytes_of(folder.path() / "moved" / place), here) << optimizer << " " << file;
    }
  }
}

TEST(Fit, NamesTheNearestSettingsThatFit) {
  RunConfig config = small_run("", 1);
  config.train.precision = "bf16";
  const StepOptions options = step_options(config, 1).value();
  const std::int64_t needs = compile_step(options).arena_bytes;
  EXPECT_TRUE(nearest_that_fit(options, 0, 1).empty());
  const std::string nearest = nearest_that_fit(options, 0, needs - 1);
  EXPECT_NE(nearest.find("optimizer.master = \"remainder\""), std::string::npos) << nearest;
  // What is named does fit.
  StepOptions split = options;
  split.optimizer.master = "remainder";
  EXPECT_LT(compile_step(split).arena_bytes, needs);
}

TEST(Moments, OfFewerBytesAreAdamWs) {
  RunConfig config = small_run("", 1);
  config.optimizer.name = "adafactor";
  config.optimizer.moments = "8bit";
  const auto refused = step_options(config, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_NE(refused.error().message.find("optimizer.moments = \"8bit\""), std::string::npos)
      << refused.error().message;
  const auto unknown = load_run_config("", {"optimizer.moments=4bit"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("optimizer.moments = \"4bit\": expected one of fp32, "
                                         "bf16, 8bit"),
            std::string::npos)
      << unknown.error().message;
  EXPECT_TRUE(load_run_config("", {"optimizer.moments=8bit"}).ok());
}

// A run goes on with moments of another size, once it is told that this is meant.
TEST(Moments, MayChangeTheirSizeOnTheWay) {
  const TemporaryFolder folder;
  ASSERT_TRUE(train_alone(small_run(folder.path(), 3)).ok());
  RunConfig rest = small_run(folder.path(), 6);
  rest.optimizer.moments = "8bit";
  rest.output.resume = true;
  const auto refused = train_alone(rest);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("optimizer.moments"), std::string::npos);
  rest.output.resume_changed = true;
  ASSERT_TRUE(train_alone(rest).ok());
  EXPECT_EQ(metrics_of(folder.path()).size(), 6u);
}

TEST(Trainer, RefusesToOverwriteARun) {
  const TemporaryFolder folder;
  ASSERT_TRUE(train_alone(small_run(folder.path(), 2)).ok());
  const std::string before =
      bytes_of(folder.path() / "checkpoints/step-00000002/model.safetensors");
  const auto again = train_alone(small_run(folder.path(), 3));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kUsage);
  EXPECT_NE(again.error().message.find("output.resume"), std::string::npos);
  EXPECT_EQ(bytes_of(folder.path() / "checkpoints/step-00000002/model.safetensors"), before);
}

// Files of a run that somebody spoiled: a position of the wrong kind is refused, a line of the
// metrics is let go.
TEST(Trainer, ReadsARunThatWasSpoiled) {
  const TemporaryFolder folder;
  ASSERT_TRUE(train_alone(small_run(folder.path(), 2)).ok());
  RunConfig more = small_run(folder.path(), 4);
  more.output.resume = true;
  const Path state = folder.path() / "checkpoints/step-00000002/state.json";
  const std::string good = bytes_of(state);
  for (const char* text : {R"({"format":"a","step":2,"samples":8})", "[]", "{\"format\":1",
                           R"({"format":1,"step":2,"samples":{}})"}) {
    ASSERT_TRUE(write_file(state, text).ok());
    const auto refused = train_alone(more);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::kBadInput) << text;
    EXPECT_NE(refused.error().message.find("state.json"), std::string::npos) << text;
  }
  ASSERT_TRUE(write_file(state, good).ok());
  std::ofstream(folder.path() / "metrics.jsonl", std::ios::app) << "{\"step\":\"x\"}\n7\n";
  ASSERT_TRUE(train_alone(more).ok());
  EXPECT_EQ(metrics_of(folder.path()).size(), 4u);
}

TEST(Trainer, StopsWhenTheLossIsNoNumberAndTouchesNothing) {
  const TemporaryFolder folder;
  RunConfig config = small_run(folder.path(), 200);
  config.output.save_every = 1;
  config.output.keep = 0;
  config.optimizer.clip_norm = 0;
  config.schedule.peak = 100;  // sends the weights to infinity within a few steps
  config.schedule.warmup_steps = 0;
  config.optimizer.weight_decay = 1;
  const auto result = train_alone(config);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kNonFinite);
  const auto newest = newest_checkpoint(folder.path());
  ASSERT_TRUE(newest.has_value());
  // Names the step that failed: the one after the last good checkpoint.
  EXPECT_NE(result.error().message.find(fmt::format("step {}:", newest->step + 1)),
            std::string::npos)
      << result.error().message;
  EXPECT_EQ(metrics_of(folder.path()).size(), static_cast<std::size_t>(newest->step));
  const auto weights = Safetensors::open(newest->folder / "model.safetensors");
  ASSERT_TRUE(weights.ok());
  for (const float w : weights.value().read_float("shared.weight", {512, 64}).value()) {
    ASSERT_TRUE(std::isfinite(w));
  }
}

TEST(Trainer, ASignalSavesAndStops) {
  const TemporaryFolder folder;
  RunConfig config = small_run(folder.path(), 1000000);
  std::thread sender([&] {
    while (!std::filesystem::exists(folder.path() / "metrics.jsonl") ||
           std::filesystem::file_size(folder.path() / "metrics.jsonl") == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(::getpid(), SIGTERM);
  });
  const auto result = train_alone(config);
  sender.join();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kInterrupted);
  const auto newest = newest_checkpoint(folder.path());
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(static_cast<std::size_t>(newest->step), metrics_of(folder.path()).size());
}

TEST(Checkpoint, OldOnesGo) {
  const TemporaryFolder folder;
  RunConfig config = small_run(folder.path(), 6);
  config.output.save_every = 1;
  config.output.keep = 2;
  ASSERT_TRUE(train_alone(config).ok());
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "checkpoints")) {
    EXPECT_TRUE(entry.path().filename() == "step-00000005" ||
                entry.path().filename() == "step-00000006");
    ++count;
  }
  EXPECT_EQ(count, 2u);
}

TEST(Checkpoint, OfAnotherModelOrOptimizerIsRefused) {
  const TemporaryFolder folder;
  ASSERT_TRUE(train_alone(small_run(folder.path(), 2)).ok());
  RunConfig other = small_run(folder.path(), 4);
  other.output.resume = other.output.resume_changed = true;
  other.optimizer.name = "adafactor";
  auto result = train_alone(other);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("optimizer"), std::string::npos) << result.error().message;
  other.optimizer.name = "adamw";
  other.model.name = "mini";
  result = train_alone(other);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
  EXPECT_NE(result.error().message.find("the model needs"), std::string::npos)
      << result.error().message;
}

TEST(Checkpoint, ATruncatedOneIsRefused) {
  const TemporaryFolder folder;
  ASSERT_TRUE(train_alone(small_run(folder.path(), 2)).ok());
  const Path file = folder.path() / "checkpoints/step-00000002/optimizer.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 100);
  RunConfig config = small_run(folder.path(), 4);
  config.output.resume = true;
  const auto result = train_alone(config);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
  EXPECT_NE(result.error().message.find("optimizer.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace quintet
