// Steps that jump: noticed, skipped or rewound, alike under every layout, and resumed bit for bit.
#include "train/spikes.h"

#include <cmath>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/support/ranks.h"
#include "train/checkpoint.h"
#include "train/sample_order.h"

namespace quintet {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run_shell;

// ---- The parts.

TEST(SpikeWatch, ComparesWithTheMedianOfTheWindow) {
  SpikeWatch watch({OnSpike::kSkip, 2, 10, 3}, {});
  EXPECT_TRUE(std::isinf(watch.limits().loss));
  for (const double loss : {4.0, 1.0, 3.0}) {
    EXPECT_EQ(watch.spike(1000, 1000), "") << "nothing to compare with yet";
    watch.note(loss, 1);
  }
  EXPECT_EQ(watch.limits().loss, 6.0f);  // twice the median of 4, 1, 3
  EXPECT_EQ(watch.limits().norm, 10.0f);
  EXPECT_EQ(watch.spike(6.0, 10), "");
  EXPECT_EQ(watch.spike(6.001, 1), "loss 6.001 is 2.0 times the median of the 3 steps before");
  EXPECT_TRUE(contains(watch.spike(1, 10.01), "gradient norm 10.01 is 10.0 times"));
  watch.note(9, 1);  // 1, 3, 9
  watch.note(9, 1);  // 3, 9, 9
  EXPECT_EQ(watch.limits().loss, 18.0f);
  EXPECT_EQ(watch.recent().losses, (std::vector<double>{3, 9, 9}));
  // As it is after a checkpoint; a shorter window forgets the oldest.
  EXPECT_EQ(SpikeWatch({OnSpike::kSkip, 2, 10, 3}, watch.recent()).limits().loss, 18.0f);
  EXPECT_EQ(SpikeWatch({OnSpike::kSkip, 2, 10, 2}, watch.recent()).recent().losses,
            (std::vector<double>{9, 9}));
}

TEST(SpikeWatch, WhatIsNotFiniteIsAlwaysASpike) {
  for (const OnSpike action : {OnSpike::kNothing, OnSpike::kRewind}) {
    const SpikeWatch watch({action, 2, 10, 50}, {});
    for (const double bad : std::vector<double>{INFINITY, NAN}) {
      EXPECT_TRUE(contains(watch.spike(bad, 1), "not finite"));
      EXPECT_TRUE(contains(watch.spike(1, bad), "not finite"));
    }
    EXPECT_EQ(watch.spike(1e30, 1e30), "");
  }
  SpikeWatch unwatched({OnSpike::kStop, 0, 0, 1}, {});
  unwatched.note(1, 1);
  EXPECT_EQ(unwatched.spike(1e30, 1e30), "");
}

TEST(SkipBatches, AreRead) {
  EXPECT_TRUE(parse_batches("", 8).value().empty());
  EXPECT_EQ(parse_batches("3", 8).value(), (std::vector<SampleRange>{{16, 24}}));
  EXPECT_EQ(parse_batches("7, 2-4,3-5, 6", 10).value(), (std::vector<SampleRange>{{10, 70}}));
  EXPECT_EQ(parse_batches(" 2 - 4 ,6", 10).value(), (std::vector<SampleRange>{{10, 40}, {50, 60}}));
  EXPECT_EQ(parse_batches("9,1", 1).value(), (std::vector<SampleRange>{{0, 1}, {8, 9}}));
  for (const char* text : {"0", "-1", "x", "1-", "-", "5-3", "1,,2", "1;2", "1 2", "1-2 3", " ",
                           "99999999999999999999", "1-9999999999"}) {
    EXPECT_EQ(parse_batches(text, 8).error().code, ErrorCode::kUsage) << text;
  }
}

// Against walking through the samples one batch at a time.
TEST(SampleOrder, TakesAllThatIsNotLeftOut) {
  std::mt19937 random(1);
  const auto draw = [&](int most) { return static_cast<std::int64_t>(random() % most); };
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t first = draw(50), batch = 1 + draw(9);
    std::vector<SampleRange> left_out;
    for (std::int64_t at = draw(40); left_out.size() < 4; at = left_out.back().end + 1 + draw(30))
      left_out.push_back({at, at + 1 + draw(25)});
    const SampleOrder order(first, batch, left_out);
    std::int64_t at = first;
    for (std::int64_t step = 0; step < 40; ++step, at += batch) {
      const auto hit = [&] {
        return std::any_of(left_out.begin(), left_out.end(), [&](const SampleRange& range) {
          return range.begin < at + batch && range.end > at;
        });
      };
      while (hit()) at += batch;
      ASSERT_EQ(order.begin_of(step), at) << "trial " << trial << " step " << step;
    }
  }
}

TEST(RunPosition, KeepsWhatWasSkipped) {
  const TemporaryFolder folder;
  RunPosition position;
  position.step = 7;
  position.samples = 80;
  position.recent = {{1.1, 1.0 / 3}, {2, 1e-30}};
  position.spikes = 2;
  position.skipped = {{{8, 16}, 2, "asked"}, {{40, 48}, 6, "spike"}};
  const auto read = [&](const std::string& text) {
    std::ofstream(folder.path() / "state.json") << text;
    return position_of({folder.path(), 7});
  };
  const auto back = read(position_to_text(position));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back.value().recent, position.recent);
  EXPECT_EQ(back.value().spikes, 2);
  EXPECT_EQ(back.value().skipped, position.skipped);
  const std::string begin = "{\"format\": 2, \"step\": 7, \"samples\": 80, ";
  ASSERT_TRUE(read(begin + "\"spikes\": 0}").ok());
  for (const char* wrong :
       {"\"recent\": 1", "\"recent\": {\"losses\": [1], \"norms\": []}",
        "\"recent\": {\"losses\": [\"a\"], \"norms\": [1]}", "\"spikes\": -1", "\"skipped\": 5",
        "\"skipped\": [5]", "\"skipped\": [{\"begin\": 9, \"end\": 8, \"step\": 1, \"why\": \"\"}]",
        "\"skipped\": [{\"begin\": 0, \"end\": 8, \"step\": 1}]"}) {
    EXPECT_EQ(read(begin + wrong + "}").error().code, ErrorCode::kBadInput) << wrong;
  }
}

// ---- Runs: the labels of batch 25 are noise.

struct SpikeLayout {
  const char* name;
  int ranks;
  const char* options;
};
const std::vector<SpikeLayout> kSpikeLayouts = {{"alone", 1, "--micro-batch 4"},
                                                {"zero", 2, "--micro-batch 2 --zero 3"},
                                                {"tp", 2, "--micro-batch 4 --tp 2"},
                                                {"pp", 2, "--micro-batch 2 --pp 2"}};

Outcome train_spiky(const SpikeLayout& layout, const Path& folder, const std::string& fault,
                    const std::string& more) {
  return run_shell(
      (fault.empty() ? "" : "QUINTET_FAULT='" + fault + "' ") + QUINTET_BINARY " launch -n " +
      std::to_string(layout.ranks) + " --threads 1 --" + testing::kSmallRun + layout.options +
      " --set batch.global=8 --set schedule.peak=0.003 --set data.languages=2 "
      "--set data.words=12 --set train.steps=32 --set output.save_every=8 --set output.keep=0 "
      "--set output.background=false --set train.spike_window=8 --set train.spike_loss=1.4 "
      "--set output.folder=" +
      folder.string() + " " + more);
}

Json metric_of(const Path& folder, std::int64_t step) {
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto json = parse_json(line, "metrics.jsonl");
    if (json.ok() && integer_in(json.value(), "step", -1) == step) return json.value();
  }
  return Json::object();
}

std::string saved(const Path& folder, const std::string& step, const char* file) {
  return testing::text_of(folder / "checkpoints" / ("step-000000" + step) / file);
}

// The same run, continued from step 24 as if it had been lost after it.
Path lost_after_24(const Path& folder) {
  const Path copy = folder.string() + "-lost";
  std::filesystem::copy(folder, copy, std::filesystem::copy_options::recursive);
  for (const char* step : {"25", "26", "32"})
    std::filesystem::remove_all(copy / "checkpoints" / (std::string("step-000000") + step));
  return copy;
}

void expect_same_end(const Path& a, const Path& b, const std::string& what) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    ASSERT_FALSE(saved(a, "32", file).empty()) << what;
    EXPECT_EQ(saved(a, "32", file), saved(b, "32", file)) << what << " " << file;
  }
}

TEST(Spikes, ASkippedStepUpdatesNothingUnderAnyLayout) {
  const TemporaryFolder folder;
  for (const SpikeLayout& layout : kSpikeLayouts) {
    const Path run = folder.path() / layout.name;
    const std::string skip = "--set train.on_spike=skip ";
    // Twice: to step 25, then on, so that there is a checkpoint right after the spike.
    const Outcome first = train_spiky(layout, run, "noise -1 25", skip + "--set train.steps=25");
    ASSERT_EQ(first.exit_code, 0) << first.output;
    EXPECT_TRUE(first.says("warning: step 25: loss ")) << first.output;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(saved(run, "24", file), saved(run, "25", file)) << layout.name;
    EXPECT_EQ(metric_of(run, 25)["skipped"], true) << layout.name;
    EXPECT_FALSE(metric_of(run, 24).contains("skipped")) << layout.name;
    const auto position = position_of(checkpoint_at(run, 25));
    ASSERT_TRUE(position.ok()) << position.error().message;
    EXPECT_EQ(position.value().samples, 200);
    EXPECT_EQ(position.value().skipped, (std::vector<SkippedSamples>{{{192, 200}, 25, "spike"}}));

    const Path lost = lost_after_24(run);
    for (const Path& path : {run, lost}) {
      const Outcome on =
          train_spiky(layout, path, "noise -1 25", skip + "--set output.resume=true");
      ASSERT_EQ(on.exit_code, 0) << on.output;
    }
    expect_same_end(run, lost, layout.name);
    EXPECT_EQ(saved(run, "32", "state.json"), saved(lost, "32", "state.json")) << layout.name;
  }
}

// The end is that of a run which was resumed without those batches.
TEST(Spikes, ARewoundRunGoesOnBehindTheSpikeUnderAnyLayout) {
  const TemporaryFolder folder;
  for (const SpikeLayout& layout : kSpikeLayouts) {
    const Path run = folder.path() / layout.name;
    const Outcome outcome = train_spiky(layout, run, "noise -1 26", "--set train.on_spike=rewind");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says("back to the checkpoint of step 24, without samples 192 to 207"))
        << outcome.output;
    EXPECT_EQ(metric_of(run, 25)["rewound_from"], 26) << layout.name;
    EXPECT_EQ(metric_of(run, 25)["samples"], 216) << layout.name;
    const auto position = position_of(checkpoint_at(run, 32));
    ASSERT_TRUE(position.ok()) << position.error().message;
    EXPECT_EQ(position.value().skipped, (std::vector<SkippedSamples>{{{192, 208}, 26, "rewind"}}));

    const Path lost = lost_after_24(run);
    const Outcome asked =
        train_spiky(layout, lost, "", "--set output.resume=true --set train.skip_batches=25-26");
    ASSERT_EQ(asked.exit_code, 0) << asked.output;
    EXPECT_TRUE(asked.says("samples 192 to 207 are left out (asked)")) << asked.output;
    expect_same_end(run, lost, layout.name);
  }
}

TEST(Spikes, StopTheRunWhereThatIsAsked) {
  const TemporaryFolder folder;
  const Outcome stopped = train_spiky(kSpikeLayouts[1], folder.path() / "stop", "noise -1 25",
                                      "--set train.on_spike=stop");
  EXPECT_EQ(stopped.exit_code, 5) << stopped.output;
  EXPECT_TRUE(stopped.says("(train.on_spike = stop)")) << stopped.output;
  const Outcome none = train_spiky(kSpikeLayouts[0], folder.path() / "none", "noise -1 25", "");
  EXPECT_EQ(none.exit_code, 0) << none.output;
  const Outcome limited = train_spiky(
      kSpikeLayouts[0], folder.path() / "limited", "noise -1 25",
      "--set train.on_spike=skip --set train.spike_norm=0.01 --set train.spike_limit=3");
  EXPECT_EQ(limited.exit_code, 5) << limited.output;
  EXPECT_TRUE(limited.says("after 3 spikes before it (train.spike_limit)")) << limited.output;
}

TEST(Spikes, ALossThatIsNoNumberIsLeftOutOnRequest) {
  const TemporaryFolder folder;
  const Path run = folder.path() / "run";
  const SpikeLayout& layout = kSpikeLayouts[1];
  const Outcome stopped = train_spiky(layout, run, "nan -1 25", "");
  EXPECT_EQ(stopped.exit_code, 5) << stopped.output;
  EXPECT_TRUE(stopped.says("train.skip_batches=25 leaves this step's batch out")) << stopped.output;
  const Outcome again = train_spiky(layout, run, "nan -1 25", "--set output.resume=true");
  EXPECT_EQ(again.exit_code, 5) << again.output;
  const Outcome on =
      train_spiky(layout, run, "nan -1 25", "--set output.resume=true --set train.skip_batches=25");
  EXPECT_EQ(on.exit_code, 0) << on.output;
  const auto position = position_of(checkpoint_at(run, 32));
  ASSERT_TRUE(position.ok()) << position.error().message;
  EXPECT_EQ(position.value().skipped, (std::vector<SkippedSamples>{{{192, 200}, 25, "asked"}}));
  EXPECT_EQ(position.value().samples, 33 * 8);
}

TEST(Spikes, SettingsThatCannotBeAreRefused) {
  for (const char* wrong : {"--set train.on_spike=rewind", "--set train.on_spike=ignore",
                            "--set train.skip_batches=x", "--set train.spike_window=0"}) {
    EXPECT_EQ(
        testing::quintet(std::string("train --model tiny --set train.steps=1 ") + wrong).exit_code,
        2)
        << wrong;
  }
}

}  // namespace
}  // namespace quintet
