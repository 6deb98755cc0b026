// Training on a corpus: the samples of a run do not depend on how it was cut into batches or broken
// off.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/corpus/build.h"
#include "tests/data/models.h"
#include "tests/support/folders.h"
#include "tests/support/temporary_folder.h"
#include "train/export.h"
#include "train/trainer.h"

namespace quintet {
namespace {

class CorpusTraining : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    put_file(folder_->path() / "model", quick_model(3000, true));
    put_file(folder_->path() / "text/aa/a.txt", sample_lines(1, 200000, 300));
    put_file(folder_->path() / "text/bb/b.txt", sample_lines(2, 100000, 300));
    BuildOptions options;
    options.inputs = {(folder_->path() / "text").string()};
    options.output = folder_->path() / "corpus";
    options.tokenizer = folder_->path() / "model";
    options.languages = LanguageRule::parse("directory").value();
    const auto report = build_corpus(options, {});
    if (!report.ok()) throw std::runtime_error(report.error().message);
  }
  static void TearDownTestSuite() { delete folder_; }

  static RunConfig config(const std::string& name, std::int64_t steps) {
    RunConfig config;
    config.model.name = "mini";  // has rows for the corpus's ids
    config.batch.micro_batch = 2;
    config.batch.accumulate = 2;
    config.batch.source = 32;
    config.data.kind = "corpus";
    config.data.corpus.folder = (folder_->path() / "corpus").string();
    config.train.steps = steps;
    config.train.threads = 1;
    config.schedule.kind = "constant";
    config.output.folder = (folder_->path() / name).string();
    config.output.log_every = 1000;
    config.output.resume = true;
    return config;
  }
  static std::vector<double> losses(const std::string& name) {
    std::ifstream file(folder_->path() / name / "metrics.jsonl");
    std::vector<double> values;
    for (std::string line; std::getline(file, line);)
      values.push_back(nlohmann::json::parse(line).at("loss"));
    return values;
  }
  static void expect_trains(RunConfig config) {
    const auto result = train(std::move(config), *make_single_world());
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  }

  static inline TemporaryFolder* folder_ = nullptr;
};

TEST_F(CorpusTraining, ResumesAtTheSampleUnderAnotherCutOfTheBatch) {
  expect_trains(config("whole", 6));
  expect_trains(config("parts", 2));
  RunConfig rest = config("parts", 6);
  rest.batch.micro_batch = 1;
  rest.batch.accumulate = 4;
  expect_trains(rest);
  const auto whole = losses("whole"), parts = losses("parts");
  ASSERT_EQ(whole.size(), 6U);
  ASSERT_EQ(parts.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(parts[i], whole[i], 1e-5 * whole[i]) << i;
}

TEST_F(CorpusTraining, AnotherGlobalBatchGoesOnWithTheNextSample) {
  expect_trains(config("grows", 3));  // samples 0 to 11
  RunConfig larger = config("grows", 5);
  larger.batch.accumulate = 5;  // of 10: 12 to 21, 22 to 31
  larger.output.resume_changed = true;
  expect_trains(larger);
  const Path state = folder_->path() / "grows/checkpoints/step-00000005/state.json";
  EXPECT_EQ(nlohmann::json::parse(read_file(state).value()).at("samples"), 32);
}

TEST_F(CorpusTraining, EveryObjectiveTrains) {
  for (const char* objective : {"span_corruption", "prefix_lm", "ul2"}) {
    for (const bool pack : {false, true}) {
      RunConfig run = config(std::string(objective) + (pack ? "-packed" : ""), 8);
      run.data.corpus.objective.name = objective;
      run.data.corpus.pack = pack;
      run.batch.source = 64;
      run.schedule.peak = 0.003;
      run.schedule.warmup_steps = 0;
      expect_trains(run);
      const auto curve = losses(Path(run.output.folder).filename());
      ASSERT_EQ(curve.size(), 8U);
      EXPECT_LT(curve.back(), curve.front()) << objective;
    }
  }
}

TEST_F(CorpusTraining, AModelHasRowsForTheCorpusOrIsGivenThem) {
  RunConfig run = config("refused", 2);
  run.model.name = "tiny";
  const auto result = train(run, *make_single_world());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
  EXPECT_NE(result.error().message.find("model.vocabulary=0"), std::string::npos);
  run.model.vocabulary = 0;
  EXPECT_EQ(step_options(run, 1).value().model.vocab_size % 128, 0);
  expect_trains(run);
}

// Weights go out with the tokenizer of their corpus, and come back only to data that has the same.
TEST_F(CorpusTraining, StartsFromWeightsOfTheSameTokenizerAlone) {
  expect_trains(config("first", 1));
  const Path out = folder_->path() / "exported";
  const auto report = export_model({folder_->path() / "first", out, "fp32", 1 << 30, {}});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(read_file(out / "spiece.model").value(), read_file(folder_->path() / "model").value());
  RunConfig second = config("second", 1);
  second.model.weights = out.string();
  expect_trains(second);

  const std::string other = quick_model(2500, true);
  put_file(out / "spiece.model", other);
  RunConfig third = config("third", 1);
  third.model.weights = out.string();
  const auto refused = train(third, *make_single_world());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kBadInput);
  EXPECT_NE(refused.error().message.find("not the tokenizer of model.weights"), std::string::npos)
      << refused.error().message;
  // More pieces than the model has rows for.
  put_file(folder_->path() / "large", quick_model(5000, true));
  ExportOptions other_tokenizer;
  other_tokenizer.checkpoint = folder_->path() / "first";
  other_tokenizer.output = folder_->path() / "x";
  other_tokenizer.tokenizer = folder_->path() / "large";
  const auto too_large = export_model(other_tokenizer);
  ASSERT_FALSE(too_large.ok());
  EXPECT_NE(too_large.error().message.find("the model's vocabulary 4096"), std::string::npos)
      << too_large.error().message;
}

}  // namespace
}  // namespace quintet
