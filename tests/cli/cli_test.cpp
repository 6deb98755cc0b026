// The command line as users meet it: what it prints, what it refuses, with which exit code.
#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/t5_config.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"
#include "train/run_config.h"

namespace quintet {
namespace {

using testing::contains;
using testing::Outcome;
using testing::quintet;

std::string golden(const std::string& name) {
  return QUINTET_SOURCE_DIR "/tests/goldens/" + name;
}

TEST(Cli, HelpIsThere) {
  for (const char* command :
       {"", "train", "launch", "sweep", "plan", "inspect", "inspect program", "verify", "config"}) {
    const Outcome outcome = quintet(std::string(command) + " --help");
    EXPECT_EQ(outcome.exit_code, 0) << command;
    EXPECT_TRUE(contains(outcome.output, "Usage")) << command;
  }
  EXPECT_EQ(quintet("").exit_code, 2);
  EXPECT_EQ(quintet("trian").exit_code, 2);
  EXPECT_EQ(quintet("train --no-such-flag").exit_code, 2);
  EXPECT_TRUE(contains(quintet("--version").output, "quintet "));
}

// A layout that cannot be is refused with the reason and what would work instead.
TEST(Cli, RefusesLayoutsAndNamesTheNearest) {
  const auto refused = [](const std::string& layout, const std::string& expected) {
    const Outcome outcome = quintet("plan " + layout);
    EXPECT_EQ(outcome.exit_code, 2) << layout;
    EXPECT_TRUE(contains(outcome.output, expected)) << layout << "\n" << outcome.output;
  };
  refused("--model mt5-small --ranks 4 --tp 4", "tp can be 1, 2, 3, 6");
  refused("--model tiny --ranks 16 --pp 16", "at most 5 are possible");
  refused("--model mt5-base --ranks 8 --tp 3", "start 6 or 9 ranks");
  refused("--model tiny --ranks 2 --tp 2 --source 33 --micro-batch 1", "tp can be 1, 3, 11, 33");
  refused("--model tiny --ranks 4 --pp 2 --schedule interleaved --interleave 2 --accumulate 3",
          "2 or 4 would be");
  refused("--model tiny --schedule interleaved", "needs a pipeline");
  refused("--model tiny --precision fp8 --micro-batch 3 --source 20", "multiples of 16");
  refused("--model tiny --precision fp8 --machine " QUINTET_SOURCE_DIR "/machines/dgx-a100.toml",
          "8.9 or later");
  refused("--ranks 8 --zero 3 --set parallel.shard_group=3", "does not divide 8");
  refused("--ranks 2 --zero 3 --set parallel.gather_fp8=true", "which are \"fp32\" and 3");
  refused("--ranks 2 --zero 2 --precision fp8 --set parallel.gather_fp8=true",
          "which are \"fp8\" and 2");
  const Outcome swept = quintet("sweep -n 2 --layout batch.micro_batch=5 --set train.steps=1");
  EXPECT_EQ(swept.exit_code, 2);
  EXPECT_TRUE(contains(swept.output, "is not a multiple of")) << swept.output;
  const Outcome twice = quintet("sweep -n 2 --model tiny --layout tp=2,parallel.tp=1");
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_TRUE(contains(twice.output, "\ntiny on 2 ranks.")) << twice.output;
  EXPECT_TRUE(contains(twice.output, "parallel.tp is given twice")) << twice.output;
}

TEST(Cli, ASweepRunsOnTheRanksThatALayoutNames) {
  const std::string sweep = "sweep -n 2 --source 16 --micro-batch 2 --set train.steps=1 ";
  const Outcome alone = quintet(sweep + "--layout zero=1,ranks=1");
  EXPECT_EQ(alone.exit_code, 0) << alone.output;
  EXPECT_TRUE(contains(alone.output, "one rank")) << alone.output;
  for (const char* ranks : {"ranks=16", "ranks=3", "ranks=one", "ranks="}) {
    const Outcome other = quintet(sweep + "--layout " + ranks);
    EXPECT_EQ(other.exit_code, 2) << other.output;
    EXPECT_TRUE(contains(other.output, "all 2 ranks of the sweep")) << other.output;
  }
  const Outcome ramp =
      quintet(sweep + "--layout zero=1 --set batch.global=4 --set 'batch.ramp=[\"1=2\"]'");
  EXPECT_EQ(ramp.exit_code, 2) << ramp.output;
  EXPECT_TRUE(contains(ramp.output, "batches of one size")) << ramp.output;
}

// mpirun says nothing of the one, and of the other that a signal killed it.
TEST(Cli, LaunchSaysWhyMpirunCouldNotStart) {
  const Outcome slots = quintet("launch -n 4 --hosts localhost:2 -- train --set train.steps=1");
  EXPECT_EQ(slots.exit_code, 2) << slots.output;
  EXPECT_TRUE(contains(slots.output, "4 ranks, and --hosts has 2 slots")) << slots.output;
  const Outcome nowhere = quintet("launch -n 2 --hosts no-such-host.invalid:2 -- train");
  EXPECT_EQ(nowhere.exit_code, 1) << nowhere.output;
  EXPECT_FALSE(contains(nowhere.output, "signal")) << nowhere.output;
}

TEST(Cli, ATraceThatCannotBeMadeIsRefusedBeforeTheFirstStep) {
  const std::string run = "train --model tiny --source 16 --micro-batch 2 --set train.steps=2 ";
  const Outcome early = quintet(run + "--trace /tmp/t.json");
  EXPECT_EQ(early.exit_code, 2);
  EXPECT_TRUE(contains(early.output, "nothing to trace")) << early.output;
  const Outcome nowhere =
      quintet(run + "--trace /no/such/folder/t.json --set output.trace_first=1");
  EXPECT_EQ(nowhere.exit_code, 7);
  EXPECT_TRUE(contains(nowhere.output, "/no/such/folder/t.json")) << nowhere.output;
  EXPECT_FALSE(contains(nowhere.output, "step 1")) << nowhere.output;
}

TEST(Cli, ConfigDocumentsEveryKeyAndReadsItsOwnOutput) {
  const Outcome outcome = quintet("config --help-all");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* key : {"[model]", "micro_batch = ", "precision = ", "clip_norm = ",
                          "warmup_steps = ", "noise_density = ", "save_every = "}) {
    EXPECT_TRUE(contains(outcome.output, key)) << key;
  }
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file(folder.path() / "run.toml", outcome.output).ok());
  EXPECT_EQ(quintet("config " + (folder.path() / "run.toml").string()).output,
            quintet("config").output);
}

TEST(Cli, MistakesAreNamed) {
  struct Case {
    const char* arguments;
    int exit_code;
    const char* says;
  };
  const TemporaryFolder folder;
  const std::string missing = (folder.path() / "none.toml").string();
  const std::vector<std::pair<std::string, Case>> cases = {
      {"train --set train.stpes=3", {"", 2, "did you mean train.steps"}},
      {"train --set train.steps=0", {"", 2, "at least 1"}},
      {"train --set train.steps=many", {"", 2, "an integer"}},
      {"train " + missing, {"", 3, "no such file"}},
      {"plan --model mt5-bsae", {"", 2, "did you mean mt5-base"}},
      {"plan --model " + missing, {"", 2, "neither a preset"}},
      {"plan --model " + folder.path().string(), {"", 3, "config.json: no such file"}},
      {"plan --source 2", {"", 2, "between 3 and"}},
      {"plan --recompute all", {"", 2, "none, selective, full"}},
      {"plan --set model.vocabulary=0", {"", 2, "give a number instead"}},
      {"plan --set model.vocabulary=1", {"", 2, "model.vocabulary = 1"}},
      {"train --set data.kind=corpus", {"", 2, "data.folder is not set"}},
      {"train --set output.resume=true", {"", 2, "without output.folder"}},
      {"train --pp 2", {"", 2, "quintet launch -n 2 -- ..."}},
      {"plan --precision fp16", {"", 2, "fp32, bf16"}},
      {"plan --set train.gradients=bf16", {"", 2, "more precise"}},
      {"train --set data.words=1000", {"", 2, "data.words"}},
      {"train --source 32 --target 4", {"", 2, "target"}},
      {"train --source 1024 --set data.mean_span=1 --set data.noise_density=0.5",
       {"", 2, "sentinels"}},
      {"train --set output.folder=/proc/nowhere", {"", 7, "/proc/nowhere"}},
      {"verify " + folder.path().string(), {"", 3, "config.json: no such file"}},
      {"verify " + golden("tiny") + " --tp 2", {"", 2, "do not divide"}},
      {"verify " + golden("tiny") + " --tp -1", {"", 2, "--tp"}},
      {"verify " + golden("tiny") + " --pp 0", {"", 2, "--pp"}},
      {"verify " + golden("tiny") + " --interleave 0", {"", 2, "--interleave"}},
      {"train --model mt5-xxl --set train.steps=1", {"", 6, "needs"}},
      {"export " + missing + " ''", {"", 2, "is empty"}},
      {"generate x y --temperature nan", {"", 2, "--temperature"}},
      {"generate x y --temperature=-1", {"", 2, "between 0 and 100"}},
      {"generate x y --top-p nan", {"", 2, "--top-p"}},
      {"generate x y --length-penalty nan", {"", 2, "--length-penalty"}},
      {"generate x y --length-penalty inf", {"", 2, "--length-penalty"}},
      {"generate x y --threads -1", {"", 2, "--threads"}},
      {"generate x y --threads 100000000", {"", 2, "--threads"}},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = quintet(arguments);
    EXPECT_EQ(outcome.exit_code, expected.exit_code) << arguments << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, expected.says)) << arguments << "\n" << outcome.output;
  }
}

// A slip in a list of cases is found before any of them has run.
TEST(Cli, ForesightChecksItsCasesBeforeTheFirst) {
  const TemporaryFolder folder;
  const std::string cases = (folder.path() / "cases.csv").string();
  const std::string out = (folder.path() / "out.csv").string();
  const auto bench = [&](const std::string& text) {
    EXPECT_TRUE(write_file(cases, text).ok());
    return quintet("bench foresight --model tiny --source 16 --repeat 3 --seconds 0.1 --cases " +
                   cases + " --out " + out);
  };
  const std::string head = "batch.micro_batch,train.recompute\n1,none\n";
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"\nbatch.micro_btach\n1\n", ":2: unknown key batch.micro_btach"},
           {head + "2,all\n", ":3: train.recompute = \"all\": expected one of"},
           {head + "0,none\n", ":3: batch.micro_batch = 0"},
           {head + "1\n", ":3: 1 fields where"},
           {"model.name\ntiny\ntinny\n", ":3: "},
           {"batch.global,batch.micro_batch\n4,2\n4,3\n", ":3: batch.global = 4"},
           {"batch.micro_batch,batch.micro_batch\n1,2\n", "two columns"}}) {
    const Outcome refused = bench(text);
    EXPECT_EQ(refused.exit_code, 2) << text << refused.output;
    EXPECT_TRUE(contains(refused.output, cases) && contains(refused.output, says))
        << refused.output;
    EXPECT_FALSE(std::filesystem::exists(out)) << text;
  }
  const Outcome plain = bench(
      "\xef\xbb\xbf"
      "batch.micro_batch,\"train.recompute\"\r\n1,full\r\n");
  EXPECT_EQ(plain.exit_code, 0) << plain.output;
  const std::string table = read_file(out).value();
  EXPECT_TRUE(table.starts_with("batch.micro_batch,train.recompute,fits,")) << table;
  EXPECT_TRUE(contains(table, "\n1,full,yes,")) << table;
}

TEST(Cli, VerifyPassesAndFailsWithTheRightCode) {
  const Outcome good = quintet("verify " + golden("tiny") + " --json");
  EXPECT_EQ(good.exit_code, 0) << good.output;
  const auto json = nlohmann::json::parse(good.output);
  EXPECT_TRUE(json["passed"].get<bool>());
  EXPECT_EQ(json["gradients"].size(), 61u);
  EXPECT_EQ(json["adamw"].size(), 12u);

  // One wrong number in the reference must be noticed.
  const TemporaryFolder folder;
  std::filesystem::copy(golden("tiny"), folder.path() / "case");
  const Path expected = folder.path() / "case/expected.json";
  auto values = nlohmann::json::parse(read_file(expected).value());
  values["adafactor"]["losses"][11] = values["adafactor"]["losses"][11].get<double>() * 1.001;
  ASSERT_TRUE(write_file(expected, values.dump()).ok());
  const Outcome bad = quintet("verify " + (folder.path() / "case").string());
  EXPECT_EQ(bad.exit_code, 4);
  EXPECT_TRUE(contains(bad.output, "FAIL"));
  EXPECT_TRUE(contains(bad.output, "outside their tolerance"));
}

TEST(Cli, VerifyRefusesBrokenFolders) {
  struct Break {
    const char* file;
    std::function<void(const Path&)> how;
    const char* says;
  };
  const auto truncate = [](const Path& path) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  };
  const auto remove = [](const Path& path) { std::filesystem::remove(path); };
  const auto edit = [](const char* key, const nlohmann::json& value) {
    return [=](const Path& path) {
      auto json = nlohmann::json::parse(read_file(path).value());
      (json.is_array() ? json[0] : json)[key] = value;
      ASSERT_TRUE(write_file(path, json.dump()).ok());
    };
  };
  const std::vector<Break> breaks = {
      {"model.safetensors", truncate, "truncated"},
      {"model.safetensors", remove, "no such file"},
      {"grads.safetensors", truncate, "truncated"},
      {"batches.json", truncate, "not valid JSON"},
      {"expected.json", remove, "no such file"},
      {"expected.json", edit("loss", "six"), "\"loss\" is missing or not a number"},
      {"config.json", edit("vocab_size", 321), "the model needs"},
      {"config.json", edit("num_layers", 4), "missing: tensor"},
      {"config.json", edit("num_layers", 2), "not part of this model: tensor"},
      {"config.json", edit("d_kv", 0), "d_kv = 0"},
      {"batches.json", edit("labels", {{1, 2}, {3}}), "rectangle"},
      {"batches.json", edit("attention_mask", {{0, 1}}), "do not fit together"},
  };
  for (const Break& b : breaks) {
    const TemporaryFolder folder;
    std::filesystem::copy(golden("tiny"), folder.path() / "case");
    b.how(folder.path() / "case" / b.file);
    const Outcome outcome = quintet("verify " + (folder.path() / "case").string());
    EXPECT_EQ(outcome.exit_code, 3) << b.file << ": " << outcome.output;
    EXPECT_TRUE(contains(outcome.output, b.says)) << b.file << ": " << outcome.output;
  }
}

TEST(Cli, WrongVocabularyInABatchIsNamed) {
  const TemporaryFolder folder;
  std::filesystem::copy(golden("tiny"), folder.path() / "case");
  const Path batches = folder.path() / "case/batches.json";
  auto json = nlohmann::json::parse(read_file(batches).value());
  json[3]["input_ids"][1][2] = 320;
  ASSERT_TRUE(write_file(batches, json.dump()).ok());
  const Outcome outcome = quintet("verify " + (folder.path() / "case").string());
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_TRUE(contains(outcome.output, "source id 320 (sequence 1, position 2)")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "vocabulary of 320")) << outcome.output;
}

TEST(Cli, PlanOfEveryPreset) {
  for (const std::string& name : preset_names()) {
    const Outcome outcome = quintet("plan --json --model " + name +
                                    " --micro-batch 8 --source 1024 --target 256 --precision bf16");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto plan = nlohmann::json::parse(outcome.output);
    std::int64_t sum = plan["unused_bytes"];
    for (const auto& [storage, bytes] : plan["bytes_at_peak"].items())
      sum += bytes.get<std::int64_t>();
    EXPECT_EQ(sum, plan["total_bytes"].get<std::int64_t>());
    // Working copy, master and two moments: 14 bytes a weight, and what alignment adds.
    const std::int64_t state = plan["bytes_at_peak"]["parameter"].get<std::int64_t>() +
                               plan["bytes_at_peak"]["optimizer"].get<std::int64_t>();
    EXPECT_EQ(state, 14 * plan["parameters"].get<std::int64_t>());
  }
}

// Shards differ by the weights in them: with rates of their own, later ranks can take more.
TEST(Cli, PlanFindsTheRankThatTakesMost) {
  const Outcome outcome = quintet(
      "plan --json --ranks 2 --model tiny --threads 1 --source 32 --precision bf16 --micro-batch 1 "
      "--zero 3 --offload 0.5 --set optimizer.clip_norm=0 --set parallel.prefetch=2 "
      "--set model.base_width=32");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto plan = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(plan["rank"], 1);
  EXPECT_EQ(plan["ranks_looked_at"], 2);
  RunConfig config;
  config.batch.micro_batch = 1;
  config.batch.source = 32;
  config.train.precision = "bf16";
  config.train.threads = 1;
  config.parallel.zero = 3;
  config.parallel.prefetch = 2;
  config.optimizer.offload = 0.5;
  config.optimizer.clip_norm = 0;
  config.model.base_width = 32;
  const StepOptions step = step_options(config, 2).value();
  EXPECT_EQ(plan["total_bytes"], compile_step(step, 1).arena_bytes);
  EXPECT_GT(compile_step(step, 1).arena_bytes, compile_step(step, 0).arena_bytes);
}

// Planning needs no GPU; running does, and says so where there is none.
TEST(Cli, PlansForAGpuAnywhereAndRefusesToRunWithoutOne) {
  const Outcome plan = quintet(
      "plan --device cuda --precision bf16 --model mt5-base --micro-batch 4 --source 128 --target "
      "32 --json");
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  const auto json = nlohmann::json::parse(plan.output);
  EXPECT_GT(json["device_bytes"].get<std::int64_t>(), json["total_bytes"].get<std::int64_t>());
  const Outcome train = quintet("train --model tiny --device cuda --set train.steps=1");
  if (train.exit_code == 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(train.exit_code, 2) << train.output;
  EXPECT_TRUE(contains(train.output, "--device cpu")) << train.output;
}

TEST(Cli, InspectShowsTheProgram) {
  const Outcome outcome = quintet("inspect program --model tiny --recompute full --accumulate 2");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* part : {"units:", "rec   encoder.1", "mb1", "linear_cross_entropy", "adamw"}) {
    EXPECT_TRUE(contains(outcome.output, part)) << part;
  }
}

TEST(Cli, TrainWritesWhatItPromises) {
  const TemporaryFolder folder;
  const Path run = folder.path() / "run";
  const Outcome outcome = quintet("train --set train.steps=5 --set output.folder=" + run.string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "trained to step 5"));
  const auto again = [&](const std::string& set) {
    return quintet("train --set output.resume=true --set output.folder=" + run.string() + set);
  };
  EXPECT_TRUE(contains(again(" --set train.steps=5").output, "raise train.steps to go on"));
  EXPECT_TRUE(contains(again(" --set train.steps=9 --set train.stop_after=5").output,
                       "raise train.stop_after, or leave it out, to go on"));
  for (const char* file :
       {"metrics.jsonl", "checkpoints/step-00000005/model.safetensors",
        "checkpoints/step-00000005/config.json", "checkpoints/step-00000005/run.toml"}) {
    EXPECT_TRUE(std::filesystem::exists(run / file)) << file;
  }
  // The saved configuration runs again.
  EXPECT_EQ(quintet("config " + (run / "checkpoints/step-00000005/run.toml").string()).exit_code,
            0);
}

}  // namespace
}  // namespace quintet
