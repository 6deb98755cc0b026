// Validation: what it says, and that training does not notice it.
#include "train/validation.h"

#include <cmath>
#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "data/corpus/build.h"
#include "data/loader/text_bytes.h"
#include "data/tokenizer/vocabulary.h"
#include "tests/data/models.h"
#include "tests/support/folders.h"
#include "tests/support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/run_signals.h"
#include "train/trainer.h"

namespace quintet {
namespace {

RunConfig validated_run(const Path& folder, std::int64_t steps) {
  RunConfig config;
  config.batch.micro_batch = 4;
  config.batch.source = 24;
  config.data.synthetic.languages = 3;
  config.train.steps = steps;
  config.train.threads = 1;
  config.schedule.warmup_steps = 2;
  config.output.folder = folder.string();
  config.output.log_every = 1000;
  config.validate.every = 2;
  config.validate.batches = 3;
  return config;
}

std::vector<nlohmann::json> lines_of_run(const Path& folder) {
  std::ifstream file(folder / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

Result<TrainResult> run_alone(RunConfig config) {
  return train(std::move(config), *make_single_world());
}

class ValidationKeepsTraining
    : public ::testing::TestWithParam<std::tuple<const char*, const char*, double, double>> {};

// Weights, optimizer state and every step's figures are those of a run without it, bit for bit.
TEST_P(ValidationKeepsTraining, BitForBit) {
  const TemporaryFolder folder;
  const auto [optimizer, precision, dropout, offload] = GetParam();
  for (const std::int64_t every : {0, 1}) {
    RunConfig config = validated_run(folder.path() / std::to_string(every), 5);
    config.validate.every = every;
    config.batch.accumulate = 2;
    config.optimizer.name = optimizer;
    config.train.precision = precision;
    config.model.dropout = dropout;
    config.optimizer.offload = offload;
    const auto result = run_alone(config);
    ASSERT_TRUE(result.ok()) << result.error().message;
  }
  const auto without = lines_of_run(folder.path() / "0"), with = lines_of_run(folder.path() / "1");
  ASSERT_EQ(with.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(with[i]["loss"], without[i]["loss"]);
    EXPECT_EQ(with[i]["grad_norm"], without[i]["grad_norm"]);
    EXPECT_TRUE(with[i].contains("validation"));
    EXPECT_FALSE(without[i].contains("validation"));
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const Path place = Path("checkpoints/step-00000005") / file;
    EXPECT_EQ(read_file(folder.path() / "1" / place).value(),
              read_file(folder.path() / "0" / place).value())
        << file;
  }
}
INSTANTIATE_TEST_SUITE_P(All, ValidationKeepsTraining,
                         ::testing::Values(std::tuple{"adamw", "fp32", 0.1, 0.0},
                                           std::tuple{"adafactor", "bf16", 0.1, 0.0},
                                           std::tuple{"adamw", "bf16", 0.0, 1.0}));

// Validation costs no memory where the step has it anyway, and says so where it needs more.
TEST(Validation, RunsInTheMemoryOfTheStep) {
  const RunConfig config = validated_run("", 1);
  const StepOptions options = step_options(config, 1).value();
  const Program step = compile_step(options);
  const auto validation = Validation::create(config, options, 12, 0, &step);
  ASSERT_TRUE(validation.ok()) << validation.error().message;
  EXPECT_LE(validation.value().program().arena_bytes, step.arena_bytes);
  // Parameters are where the step has them, all else is beyond what it keeps.
  std::int64_t kept = 0;
  for (const Tensor& t : step.tensors) {
    if (t.base == kNone && is_resident(t.storage)) kept = std::max(kept, t.offset + t.bytes());
  }
  const Program& program = validation.value().program();
  int parameters = 0;
  for (const Tensor& t : program.tensors) {
    if (t.base != kNone || t.offset < 0) continue;
    if (t.storage == Storage::kParameter) {
      ++parameters;
      const auto same =
          std::find_if(step.tensors.begin(), step.tensors.end(), [&](const Tensor& s) {
            return s.base == kNone && s.storage == t.storage && s.name == t.name;
          });
      ASSERT_NE(same, step.tensors.end()) << t.name;
      EXPECT_EQ(t.offset, same->offset) << t.name;
    } else {
      EXPECT_GE(t.offset, kept) << t.name;
    }
  }
  EXPECT_GT(parameters, 3);
}

// The total is that of the languages, the same from the checkpoint as in the run, in whatever
// batches; and a break in the middle changes nothing.
TEST(Validation, FiguresAgreeHoweverTheyAreTaken) {
  const TemporaryFolder folder;
  const auto whole = run_alone(validated_run(folder.path() / "whole", 6));
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  RunConfig first = validated_run(folder.path() / "parts", 3);
  ASSERT_TRUE(run_alone(first).ok());
  RunConfig second = validated_run(folder.path() / "parts", 6);
  second.output.resume = true;
  ASSERT_TRUE(run_alone(second).ok());
  const auto expected = lines_of_run(folder.path() / "whole"),
             found = lines_of_run(folder.path() / "parts");
  for (const std::size_t step : {2, 4, 6}) {
    const auto &a = expected[step - 1]["validation"], &b = found[step - 1]["validation"];
    EXPECT_EQ(a["loss"], b["loss"]);
    EXPECT_EQ(a["languages"], b["languages"]);
    double sum = 0;
    std::int64_t tokens = 0, sequences = 0;
    for (const auto& language : a["languages"]) {
      tokens += language["tokens"].get<std::int64_t>();
      sequences += language["sequences"].get<std::int64_t>();
      sum += language["loss"].get<double>() * language["tokens"].get<double>();
    }
    EXPECT_EQ(tokens, a["tokens"]);
    EXPECT_EQ(sequences, 12);
    EXPECT_NEAR(sum / static_cast<double>(tokens), a["loss"].get<double>(), 1e-9);
  }
  EXPECT_EQ(expected[5]["samples"], 24);
  EXPECT_EQ(expected[5]["tokens"].get<std::int64_t>() % 24, 0);
  EXPECT_GT(expected[5]["time"].get<double>(), 1.7e9);
  const double loss = expected[5]["validation"]["loss"];
  EXPECT_EQ(whole.value().summary.validation_loss, loss);
  // From the checkpoint, in batches that do not come out even.
  for (const char* batch : {"4", "5", "32"}) {
    const Path checkpoint = checkpoint_folder(folder.path() / "whole").value();
    const auto config =
        evaluation_config(checkpoint, {std::string("batch.micro_batch=") + batch}).value();
    EXPECT_EQ(config.sequences, 12);
    const auto result = evaluate(checkpoint, config, *make_single_world());
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result.value().total.sequences, 12);
    EXPECT_NEAR(result.value().loss(), loss, 1e-6);
  }
}

// What was asked of the training, and of its ranks, does not stop whoever wants its figures.
TEST(Validation, RunsWithARampARewindOrAnotherLayoutAreEvaluated) {
  const TemporaryFolder folder;
  RunConfig config = validated_run(folder.path(), 3);
  config.batch.global = 8;
  config.batch.ramp = {"2=4"};
  config.train.on_spike = "rewind";
  config.output.save_every = 1;
  const auto trained = run_alone(config);
  ASSERT_TRUE(trained.ok()) << trained.error().message;
  const Path checkpoint = checkpoint_folder(folder.path()).value();
  const auto result =
      evaluate(checkpoint, evaluation_config(checkpoint, {}).value(), *make_single_world());
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result.value().total.sequences, 24);  // three of the largest batches, as in the run
  EXPECT_NEAR(result.value().loss(), trained.value().summary.validation_loss.value(), 1e-6);
  // As a run under another layout leaves it.
  RunConfig saved = load_run_config((checkpoint / "run.toml").string(), {}).value();
  saved.train.skip_batches = "2";
  saved.parallel.shard_group = 4;
  saved.parallel.gather_fp8 = true;
  saved.parallel.schedule = "interleaved";
  saved.parallel.interleave = 2;
  const Path other = folder.path() / "other";
  put_file(other / "run.toml", config_to_toml(saved.fields(), false));
  std::filesystem::copy(checkpoint / "config.json", other / "config.json");
  const auto options = step_options(evaluation_config(other, {}).value().run, 1);
  EXPECT_TRUE(options.ok()) << options.error().message;
  const std::vector<std::string> asked = {"parallel.shard_group=4"};
  EXPECT_FALSE(step_options(evaluation_config(other, asked).value().run, 1).ok());
}

// Of a rate so high that the loss rises, the best checkpoint is an early one; it is kept, and
// patience ends the run.
TEST(Validation, KeepsTheBestAndLosesPatience) {
  const TemporaryFolder folder;
  RunConfig config = validated_run(folder.path(), 40);
  config.schedule.peak = 0.5;
  config.schedule.warmup_steps = 0;
  config.schedule.kind = "constant";
  config.validate.every = 1;
  config.validate.patience = 3;
  config.output.keep = 1;
  config.output.keep_best = 1;
  const auto result = run_alone(config);
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_TRUE(result.value().ended_early);
  const std::int64_t best = result.value().summary.best_step, steps = result.value().steps;
  EXPECT_EQ(steps, best + 3);
  const auto lines = lines_of_run(folder.path());
  ASSERT_EQ(static_cast<std::int64_t>(lines.size()), steps);
  double lowest = INFINITY;
  for (const auto& line : lines)
    lowest = std::min(lowest, line["validation"]["loss"].get<double>());
  EXPECT_EQ(lines[static_cast<std::size_t>(best - 1)]["validation"]["loss"], lowest);
  EXPECT_EQ(result.value().summary.best_validation, lowest);
  const auto summary = nlohmann::json::parse(read_file(folder.path() / "summary.json").value());
  EXPECT_EQ(summary["best_validation"], lowest);
  EXPECT_EQ(summary["best_step"], best);
  std::vector<std::int64_t> kept;
  for (const auto& info : list_checkpoints(folder.path())) kept.push_back(info.step);
  EXPECT_EQ(kept, (std::vector<std::int64_t>{best, steps}));
  // Resumed, there is nothing to do; with more patience there is.
  config.output.resume = true;
  const auto again = run_alone(config);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again.value().was_done && again.value().ended_early);
  EXPECT_EQ(again.value().steps, steps);
  config.validate.patience = 4;
  const auto more = run_alone(config);
  ASSERT_TRUE(more.ok()) << more.error().message;
  EXPECT_GT(more.value().steps, steps);
}

TEST(Validation, RefusesWhatCannotBe) {
  const auto says = [](const RunConfig& config, const char* what) {
    const auto result = run_alone(config);
    ASSERT_FALSE(result.ok()) << what;
    EXPECT_EQ(result.error().code, ErrorCode::kUsage);
    EXPECT_NE(result.error().message.find(what), std::string::npos) << result.error().message;
  };
  RunConfig config = validated_run("", 2);
  config.validate.corpus = "somewhere";
  says(config, "validate.corpus has no effect");
  config = validated_run("", 2);
  config.validate.every = 0;
  config.validate.patience = 1;
  says(config, "set validate.every");
  config.validate.patience = 0;
  config.output.keep_best = 1;
  says(config, "set validate.every");
  for (const char* bad : {"validate.every=-1", "validate.batches=0", "validate.split=test",
                          "validate.patience=-1", "validate.evry=1"}) {
    EXPECT_FALSE(load_run_config("", {bad}).ok()) << bad;
  }
  const TemporaryFolder folder;
  const auto none = evaluation_config(folder.path(), {});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("run.toml"), std::string::npos);
}

// Of a run that would validate for ever: the step is saved, and as one that was not validated.
TEST(Validation, ARequestToStopEndsItWithoutAResult) {
  const TemporaryFolder folder;
  RunConfig config = validated_run(folder.path(), 2);
  config.validate.every = 1;
  config.validate.sequences = std::int64_t{1} << 40;
  const auto stopped = [&](std::int64_t seconds, const auto& run) {
    std::thread sender([&] {
      while (!std::filesystem::exists(folder.path() / "metrics.jsonl"))
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
      ::kill(::getpid(), SIGTERM);
    });
    const auto result = run();
    sender.join();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kInterrupted) << result.error().message;
  };
  for (const std::int64_t step : {1, 2}) {
    stopped(1, [&] { return run_alone(config); });
    const auto lines = lines_of_run(folder.path());
    ASSERT_EQ(static_cast<std::int64_t>(lines.size()), step);
    EXPECT_FALSE(lines.back().contains("validation"));
    EXPECT_EQ(newest_checkpoint(folder.path())->step, step);
    config.output.resume = true;
  }
  const Path checkpoint = checkpoint_folder(folder.path()).value();
  const EvaluationConfig given = evaluation_config(checkpoint, {}).value();
  const RunSignals signals;  // whenever it comes
  stopped(0, [&] { return evaluate(checkpoint, given, *make_single_world()); });
}

class CorpusValidation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    put_file(folder_->path() / "model", quick_model(3000, true));
    put_file(folder_->path() / "text/aa/a.txt", sample_lines(1, 60000, 300));
    put_file(folder_->path() / "text/bb/b.txt", sample_lines(2, 40000, 300));
    for (const double held_out : {0.0, 0.2}) {
      BuildOptions options;
      options.inputs = {(folder_->path() / "text").string()};
      options.output = folder_->path() / (held_out > 0 ? "corpus" : "all");
      options.tokenizer = folder_->path() / "model";
      options.languages = LanguageRule::parse("directory").value();
      options.held_out = held_out;
      const auto report = build_corpus(options, {});
      if (!report.ok()) throw std::runtime_error(report.error().message);
    }
  }
  static void TearDownTestSuite() { delete folder_; }

  static RunConfig config(const char* corpus) {
    RunConfig config;
    config.model.name = "tiny";
    config.model.vocabulary = 0;
    config.batch.micro_batch = 4;
    config.batch.source = 32;
    config.data.kind = "corpus";
    config.data.corpus.folder = (folder_->path() / corpus).string();
    config.train.steps = 2;
    config.train.threads = 1;
    config.output.log_every = 1000;
    config.validate.every = 2;
    config.validate.batches = 4;
    return config;
  }

  static inline TemporaryFolder* folder_ = nullptr;
};

TEST_F(CorpusValidation, BitsPerByteByLanguage) {
  for (const bool pack : {false, true}) {
    RunConfig run = config("corpus");
    run.data.corpus.pack = pack;
    run.output.folder = (folder_->path() / (pack ? "packed" : "plain")).string();
    const auto result = run_alone(run);
    ASSERT_TRUE(result.ok()) << result.error().message;
    const auto figures = lines_of_run(run.output.folder).back()["validation"];
    ASSERT_EQ(figures["languages"].size(), 2U);
    EXPECT_EQ(figures["sequences"], 16);
    // An untrained model: about log2(words) bits for each label.
    const StepOptions options = step_options(run, 1).value();
    EXPECT_NEAR(figures["loss"].get<double>(),
                std::log(static_cast<double>(options.model.vocab_size)), 1.5);
    double nats = 0, bytes = 0;
    for (const char* language : {"aa", "bb"}) {
      const auto& one = figures["languages"].at(language);
      const double sum = one["loss"].get<double>() * one["tokens"].get<double>();
      nats += sum;
      bytes += sum / std::log(2.0) / one["bits_per_byte"].get<double>();
      EXPECT_GT(one["bits_per_byte"].get<double>(), 0.5);
    }
    EXPECT_NEAR(bytes, std::round(bytes), 1e-6);  // they are counted
    EXPECT_NEAR(figures["bits_per_byte"].get<double>(), nats / std::log(2.0) / bytes, 1e-9);
  }
}

TEST_F(CorpusValidation, SaysWhatToDoWithoutAHeldOutSplit) {
  const auto refused = run_alone(config("all"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  for (const char* what : {"held_out", "--held-out", "validate.corpus", "validate.every=0"})
    EXPECT_NE(refused.error().message.find(what), std::string::npos) << refused.error().message;
  // On another corpus, or on all of it, it works.
  RunConfig other = config("all");
  other.validate.corpus = (folder_->path() / "corpus").string();
  EXPECT_TRUE(run_alone(other).ok());
  other.validate.corpus = (folder_->path() / "all").string();
  other.validate.split = "train";
  EXPECT_TRUE(run_alone(other).ok());
  other.validate.corpus = (folder_->path() / "nowhere").string();
  EXPECT_FALSE(run_alone(other).ok());
}

TEST_F(CorpusValidation, PairsAreValidatedOnOtherPairs) {
  const auto pairs = [](int from, int count) {
    std::string lines;
    for (int i = from; i < from + count; ++i)
      lines += fmt::format("{{\"source\":\"{0} ab {0}\",\"target\":\"{0}\"}}\n", i);
    return lines;
  };
  put_file(folder_->path() / "train.jsonl", pairs(0, 12));
  put_file(folder_->path() / "other.jsonl", pairs(50, 5));
  RunConfig run = config("corpus");
  run.data.corpus.folder.clear();
  run.data.kind = "pairs";
  run.data.pairs.files = {(folder_->path() / "train.jsonl").string()};
  run.data.pairs.tokenizer = (folder_->path() / "model").string();
  run.batch.target = 8;
  const auto refused = run_alone(run);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("validate.corpus"), std::string::npos)
      << refused.error().message;
  run.validate.corpus = (folder_->path() / "other.jsonl").string();
  run.output.folder = (folder_->path() / "pairs").string();
  const auto result = run_alone(run);
  ASSERT_TRUE(result.ok()) << result.error().message;
  // Each of them once, though more were asked for.
  const auto figures = lines_of_run(run.output.folder).back()["validation"];
  EXPECT_EQ(figures["sequences"], 5);
  EXPECT_FALSE(figures.contains("bits_per_byte"));
  const Path checkpoint = checkpoint_folder(run.output.folder).value();
  const auto again =
      evaluate(checkpoint, evaluation_config(checkpoint, {"batch.micro_batch=3"}).value(),
               *make_single_world());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_NEAR(again.value().loss(), figures["loss"].get<double>(), 1e-6);
}

TEST_F(CorpusValidation, TextBytesAreThoseOfThePieces) {
  const auto bytes = text_bytes(folder_->path() / "corpus").value();
  ModelProto model = parse_model(read_file(folder_->path() / "model").value(), "model").value();
  const Vocabulary vocabulary = Vocabulary::create(std::move(model), "model").value();
  ASSERT_EQ(bytes.size(), static_cast<std::size_t>(vocabulary.size()));
  const std::int32_t text = vocabulary.size() - vocabulary.sentinels();
  std::int64_t checked = 0;
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    const Piece& piece = vocabulary.piece(id);
    if (id >= text || piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) {
      EXPECT_EQ(bytes[static_cast<std::size_t>(id)], 0) << piece.text;
      continue;
    }
    if (piece.type != PieceType::kNormal || piece.text == "\xE2\x96\x81") continue;
    // Behind another piece nothing is taken off at the beginning of the text.
    const std::int32_t pair[] = {id, id};
    const std::string twice = vocabulary.decode(pair).value();
    const std::string once = vocabulary.decode(std::span(pair).first(1)).value();
    EXPECT_EQ(bytes[static_cast<std::size_t>(id)],
              static_cast<std::int32_t>(twice.size() - once.size()))
        << piece.text;
    ++checked;
  }
  EXPECT_GT(checked, 1000);
}

}  // namespace
}  // namespace quintet
