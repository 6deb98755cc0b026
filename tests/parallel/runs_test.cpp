// Runs on several ranks as users start them: checkpoints that move between layouts, reference
// values under layouts, a trace.
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using testing::Outcome;
using testing::quintet;
using testing::run_shell;

const std::string kSmall =
    " train --model tiny --source 32 --set schedule.kind=constant --set schedule.warmup_steps=2 "
    "--set output.log_every=1 "
    "--set parallel.whole_below=0 ";

std::vector<double> losses(const Path& folder) {
  std::vector<double> values;
  std::ifstream lines(folder / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);)
    values.push_back(nlohmann::json::parse(line).at("loss"));
  return values;
}

TEST(Runs, ACheckpointContinuesUnderAnotherLayout) {
  const TemporaryFolder folder;
  const Path straight = folder.path() / "straight", moved = folder.path() / "moved";
  const auto train = [&](const Path& to, int ranks, const std::string& layout) {
    const Outcome outcome = quintet(
        "launch -n " + std::to_string(ranks) + " --threads 1 --" + kSmall + layout +
        " --set output.resume=true --set model.dropout=0.1 --set output.folder=" + to.string());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  };
  train(straight, 1, "--micro-batch 8 --set train.steps=9");
  // Tensor-parallel with sharded states, then a pipeline, then data-parallel with all sharded.
  train(moved, 4, "--micro-batch 4 --tp 2 --zero 1 --set train.steps=3");
  train(moved, 2, "--micro-batch 2 --accumulate 4 --pp 2 --set train.steps=6");
  train(moved, 4, "--micro-batch 2 --zero 3 --set train.steps=9");
  const auto expected = losses(straight), found = losses(moved);
  ASSERT_EQ(expected.size(), 9U);
  ASSERT_EQ(found.size(), 9U);
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << "step " << i + 1;
}

// Codes gathered instead of weights: the same training and validation to the bit, and checkpoints
// know nothing of it.
TEST(Runs, GatheringCodesIsLeftAndTakenUpAtACheckpoint) {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& to, const std::string& set) {
    const Outcome outcome =
        quintet("launch -n 2 --threads 1 --" + kSmall +
                "--micro-batch 4 --precision fp8 --zero 3 --set validate.every=2"
                " --set validate.sequences=8 --set output.resume=true --set output.folder=" +
                (folder.path() / to).string() + set);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  };
  train("weights", " --set train.steps=6");
  train("both", " --set train.steps=2 --set parallel.gather_fp8=true");
  train("both", " --set train.steps=4");
  train("both", " --set train.steps=6 --set parallel.gather_fp8=true");
  const auto found = losses(folder.path() / "both");
  EXPECT_EQ(found.size(), 6U);
  EXPECT_EQ(found, losses(folder.path() / "weights"));
  const auto checkpoint = [&](const char* of) {
    const Path newest = folder.path() / of / "checkpoints" / "step-00000006";
    return read_file(newest / "model.safetensors").value() +
           read_file(newest / "optimizer.safetensors").value();
  };
  EXPECT_TRUE(checkpoint("both") == checkpoint("weights"));
}

TEST(Runs, BatchesGrowAlikeUnderLayouts) {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& name, int ranks, const std::string& layout) {
    const Outcome outcome =
        quintet("launch -n " + std::to_string(ranks) + " --threads 1 --" + kSmall + layout +
                " --set batch.global=16 --set 'batch.ramp=[\"2=4\",\"4=8\"]' --set "
                "model.label_smoothing=0.1"
                " --set train.steps=6 --set validate.every=3 --set validate.sequences=8"
                " --set output.folder=" +
                (folder.path() / name).string());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return losses(folder.path() / name);
  };
  const auto expected = train("one", 1, "--micro-batch 4");
  ASSERT_EQ(expected.size(), 6U);
  int number = 0;
  for (const auto& [ranks, layout] : {std::pair{2, "--micro-batch 2 --zero 3"},
                                      {2, "--micro-batch 4 --tp 2"},
                                      {2, "--micro-batch 2 --pp 2"},
                                      {4, "--micro-batch 2 --tp 2 --zero 1"}}) {
    const auto found = train("layout-" + std::to_string(++number), ranks, layout);
    ASSERT_EQ(found.size(), 6U) << layout;
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << layout << ", step " << i + 1;
  }
}

TEST(Runs, ReferenceValuesHoldUnderLayouts) {
  const auto verify = [](int ranks, const std::string& model, const std::string& layout) {
    const Outcome outcome =
        quintet("launch --threads 1 -n " + std::to_string(ranks) +
                " -- verify " QUINTET_SOURCE_DIR "/tests/goldens/" + model + " " + layout);
    EXPECT_EQ(outcome.exit_code, 0) << model << " " << layout << "\n" << outcome.output;
  };
  verify(2, "grid", "--zero 2");
  verify(2, "grid", "--tp 2");
  verify(2, "grid", "--pp 2 --accumulate 2");
  verify(4, "grid", "--tp 2 --pp 2 --accumulate 2");
  verify(4, "grid", "--pp 2 --zero 3 --recompute full");
  verify(4, "grid", "--tp 2 --zero 3 --precision bf16");
  // Three sequences and three heads: not what the ranks would like.
  verify(2, "tiny", "--zero 3");
  verify(3, "tiny", "--tp 3");
  verify(4, "tiny", "--pp 2 --zero 1 --accumulate 2");
}

TEST(Runs, TheTraceShowsAllRanksAndTheBooksAddUp) {
  const TemporaryFolder folder;
  const Path trace = folder.path() / "trace.json";
  const Outcome outcome =
      quintet("launch -n 4 --threads 1 --" + kSmall +
              "--micro-batch 2 --accumulate 4 --tp 2 --pp 2 --set train.steps=6 --trace " +
              trace.string() + " --set output.folder=" + folder.path().string());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto file = nlohmann::json::parse(read_file(trace).value());
  std::map<int, double> first, last;
  std::set<std::string> names;
  for (const auto& event : file.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid");
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    EXPECT_GE(event.at("dur").get<double>(), 0);
    first[rank] = first.contains(rank) ? std::min(first[rank], begin) : begin;
    last[rank] = std::max(last[rank], end);
    names.insert(event.at("name").get<std::string>());
    EXPECT_GE(event.at("args").at("step").get<int>(), 3);
    EXPECT_LE(event.at("args").at("step").get<int>(), 4);
  }
  EXPECT_EQ(first.size(), 4U);
  // One time line: the steps of all ranks lie over each other.
  for (const auto& [rank, begin] : first) EXPECT_LT(begin, last[0]) << rank;
  EXPECT_TRUE(names.contains("attention encoder.0"));

  const auto summary = nlohmann::json::parse(read_file(folder.path() / "summary.json").value());
  ASSERT_EQ(summary.at("ranks").size(), 4U);
  for (const auto& rank : summary.at("ranks")) {
    const auto& seconds = rank.at("seconds");
    double sum = 0;
    for (const char* part : {"data_wait", "compute", "recompute", "optimizer", "bubble", "other"})
      sum += seconds.at(part).get<double>();
    for (const auto& part : seconds.at("exposed")) sum += part.get<double>();
    EXPECT_NEAR(sum, seconds.at("step").get<double>(), 1e-6);
    EXPECT_GE(seconds.at("other").get<double>(), -1e-9);
    EXPECT_EQ(rank.at("traffic_planned"), rank.at("traffic_counted"));
    EXPECT_EQ(rank.at("predicted_bytes"), rank.at("arena_bytes"));
  }
}

TEST(Runs, ASweepLaysLayoutsSideBySideAndStopsWhenToldTo) {
  const TemporaryFolder folder;
  const std::string sweep =
      "sweep -n 2 --model tiny --source 32 --micro-batch 2 --accumulate 2 --set train.steps=4 "
      "--set parallel.whole_below=0 --layout ranks=1 --layout zero=3 --layout tp=2 --keep " +
      (folder.path() / "kept").string();
  const Outcome done = quintet(sweep);
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_TRUE(done.says("All 3 loss curves agree")) << done.output;
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "kept/02-zero=3/summary.json"));
  // One layout that cannot be does not take the others along, and is not passed over either.
  const Outcome refused = quintet(sweep + "2 --layout tp=3");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_TRUE(refused.says("1 of 4 layouts did not run")) << refused.output;
  // Ctrl-C, which a terminal sends to the whole group, ends the sweep and not only one layout.
  const Outcome stopped = run_shell("setsid timeout -s INT 4 " QUINTET_BINARY " " + sweep +
                                    "3 --set train.steps=1000000");
  EXPECT_TRUE(stopped.says("1/3")) << stopped.output;
  EXPECT_FALSE(stopped.says("2/3")) << stopped.output;
}

}  // namespace
}  // namespace quintet
