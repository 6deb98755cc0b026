// Pairs of source and target text: what is read from which file, in which order, what is refused,
// and training on them.
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/loader/pairs_source.h"
#include "generate/generator.h"
#include "tests/data/models.h"
#include "tests/support/command.h"
#include "tests/support/folders.h"
#include "tests/support/mutate.h"
#include "tests/support/temporary_folder.h"
#include "train/trainer.h"

namespace quintet {
namespace {

using testing::contains;

struct TextPair {
  std::string source, target;
};

class Pairs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    put_file(at("model"), quick_model(1000, true, 1 << 17));
    put_file(at("pairs.jsonl"), json_lines(texts(), "source", "target"));
  }
  static void TearDownTestSuite() { delete folder_; }
  static Path at(const std::string& name) { return folder_->path() / name; }

  static std::vector<TextPair> texts() {
    const auto lines = split_lines(sample_lines(3, 6000, 60));
    std::vector<TextPair> pairs;
    for (std::size_t i = 0; i + 1 < lines.size() && pairs.size() < 37; i += 2)
      pairs.push_back({lines[i], lines[i + 1].substr(0, 20)});
    // Escapes, quotes, nothing at all, a sentinel.
    for (auto& pair : pairs) {
      while (!pair.target.empty() && (pair.target.back() & 0x80) != 0) pair.target.pop_back();
    }
    pairs.push_back({"tab\tand \"quotes\", comma\nline", ""});
    pairs.push_back({"", "to nothing"});
    return pairs;
  }
  static std::string json_lines(const std::vector<TextPair>& pairs, const char* source,
                                const char* target) {
    std::string text;
    for (const auto& [a, b] : pairs)
      text += to_text(Json{{"id", 7}, {source, a}, {target, b}}) + "\n";
    return text;
  }
  static PairsConfig config_of(const std::string& file) {
    PairsConfig config;
    config.files = {at(file).string()};
    config.tokenizer = at("model").string();
    return config;
  }
  static Result<PairsSource> open(const PairsConfig& config, std::int64_t source = 64,
                                  std::int64_t target = 32, std::uint64_t seed = 1) {
    return PairsSource::open(config, source, target, 3000, seed);
  }
  static void refused(const std::string& name, const std::string& contents,
                      const std::string& says) {
    put_file(at(name), contents);
    const auto source = open(config_of(name));
    ASSERT_FALSE(source.ok()) << name;
    EXPECT_TRUE(contains(source.error().message, says)) << source.error().message;
    EXPECT_TRUE(contains(source.error().message, name)) << source.error().message;
    EXPECT_EQ(source.error().code, ErrorCode::kBadInput);
  }

  static inline TemporaryFolder* folder_ = nullptr;
};

TEST_F(Pairs, AreTheSameFromEveryKindOfFile) {
  const std::string text = json_lines(texts(), "source", "target");
  const std::string expected = open(config_of("pairs.jsonl")).value().digest();
  put_file(at("packed.jsonl.gz"), gzip(text));
  put_file(at("packed.json.zst"), zstd(text));
  std::string csv = "id,source,target\n";
  for (const auto& [a, b] : texts()) {
    const auto quoted = [](const std::string& field) {
      std::string out = "\"";
      for (const char c : field) out += c == '"' ? std::string("\"\"") : std::string(1, c);
      return out + "\"";
    };
    csv += "1," + quoted(a) + "," + quoted(b) + "\n";
  }
  put_file(at("table.csv"), csv);
  for (const char* name : {"packed.jsonl.gz", "packed.json.zst", "table.csv"}) {
    const auto source = open(config_of(name));
    ASSERT_TRUE(source.ok()) << source.error().message;
    EXPECT_EQ(source.value().digest(), expected) << name;
  }
  // Other names, empty lines between, and two files one after the other.
  std::vector<TextPair> first = texts(), second(first.begin() + 20, first.end());
  first.resize(20);
  put_file(at("two/a.jsonl"), json_lines(first, "in", "out") + "\n \r\n");
  put_file(at("two/b.jsonl"), json_lines(second, "in", "out"));
  PairsConfig two = config_of("two");
  two.source_field = "in";
  two.target_field = "out";
  EXPECT_EQ(open(two).value().digest(), expected);
}

// Columns of files that pyarrow wrote.
TEST_F(Pairs, ComeFromParquetRowByRow) {
  const Path folder = Path(QUINTET_SOURCE_DIR) / "tests/data/parquet";
  PairsConfig config = config_of("");
  config.source_field = config.target_field = "lang";
  const auto digest_of = [&](const char* name) {
    config.files = {(folder / name).string()};
    const auto source = open(config);
    EXPECT_TRUE(source.ok()) << source.error().message;
    return source.ok() ? source.value().digest() : "";
  };
  const std::string expected = digest_of("expected.jsonl");
  for (const char* name : {"plain.parquet", "zstd.parquet", "v2.parquet", "one_group.parquet"})
    EXPECT_EQ(digest_of(name), expected) << name;
  config.source_field = "text";
  const auto with_null = open(config);
  ASSERT_FALSE(with_null.ok());
  EXPECT_TRUE(contains(with_null.error().message, "\"text\" is null")) << with_null.error().message;
  config.target_field = "nothing";
  EXPECT_TRUE(contains(open(config).error().message, "nothing"));
}

TEST_F(Pairs, BecomeRowsThatEndAndArePadded) {
  const auto pairs = texts();
  const Tokenizer tokenizer = Tokenizer::open(at("model")).value();
  Encoder encoder(tokenizer);
  const auto ids_of = [&](const std::string& text) {
    Buffer<std::int32_t> ids;
    EXPECT_TRUE(encoder.encode(text, ids).ok());
    return std::vector<std::int32_t>(ids.data(), ids.data() + ids.size());
  };
  constexpr std::int64_t kSource = 12, kTarget = 8;
  PairsSource source = open(config_of("pairs.jsonl"), kSource, kTarget).value();
  ASSERT_EQ(source.pairs(), std::ssize(pairs));
  Batch batch;
  batch.resize(source.pairs(), kSource, kTarget);
  ASSERT_TRUE(source.fill(0, batch).ok());
  std::int64_t cut_sources = 0, cut_targets = 0;
  for (std::int64_t row = 0; row < source.pairs(); ++row) {
    const TextPair& pair = pairs[source.pair_of(row)];
    auto in = ids_of(pair.source), out = ids_of(pair.target);
    cut_sources += std::ssize(in) > kSource - 1 ? 1 : 0;
    cut_targets += std::ssize(out) > kTarget - 1 ? 1 : 0;
    in.resize(std::min<std::size_t>(in.size(), kSource - 1));
    out.resize(std::min<std::size_t>(out.size(), kTarget - 1));
    in.push_back(tokenizer.vocabulary().eos_id());
    out.push_back(tokenizer.vocabulary().eos_id());
    EXPECT_EQ(batch.lengths[static_cast<std::size_t>(row)], std::ssize(in));
    auto decoder = out;
    decoder.insert(decoder.begin(), 0);
    in.resize(kSource, 0);
    out.resize(kTarget, -1);
    decoder.resize(kTarget, 0);
    const auto row_of = [&](const std::vector<std::int32_t>& all, std::int64_t length) {
      return std::vector(all.begin() + row * length, all.begin() + (row + 1) * length);
    };
    EXPECT_EQ(row_of(batch.source, kSource), in) << row;
    EXPECT_EQ(row_of(batch.labels, kTarget), out) << row;
    // What follows the end is not looked at, whatever it is.
    const auto target = row_of(batch.target, kTarget);
    for (std::size_t i = 0; i < kTarget && (i == 0 || out[i - 1] >= 0); ++i)
      EXPECT_EQ(target[i], decoder[i]) << row << " " << i;
  }
  EXPECT_GT(cut_sources, 0);
  EXPECT_EQ(source.cut_sources(), cut_sources);
  EXPECT_EQ(source.cut_targets(), cut_targets);
  EXPECT_TRUE(contains(source.description(), fmt::format("{} sources were cut", cut_sources)));
}

TEST_F(Pairs, EveryEpochHasEachOnceInItsOwnOrder) {
  const PairsSource source = open(config_of("pairs.jsonl")).value();
  const PairsSource other = open(config_of("pairs.jsonl"), 64, 32, 2).value();
  std::vector<std::vector<std::uint64_t>> epochs(3), others(3);
  for (std::int64_t i = 0; i < 3 * source.pairs(); ++i) {
    epochs[static_cast<std::size_t>(i / source.pairs())].push_back(source.pair_of(i));
    others[static_cast<std::size_t>(i / source.pairs())].push_back(other.pair_of(i));
  }
  for (const auto& epoch : epochs)
    EXPECT_EQ(std::set(epoch.begin(), epoch.end()).size(),
              static_cast<std::size_t>(source.pairs()));
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(epochs[0], others[0]);
}

TEST_F(Pairs, ThatAreNoneAreNamedByFileAndLine) {
  const std::string good = R"({"source": "a", "target": "b"})"
                           "\n";
  refused("broken.jsonl", good + "\n{\"source\": \"a\", \n", "broken.jsonl:3");
  refused("list.jsonl", good + "[1]\n", "list.jsonl:2: not a JSON object");
  refused("field.jsonl", good + good + R"({"source": "a", "text": "b"})",
          "field.jsonl:3: has no field \"target\"");
  refused("number.jsonl", R"({"source": 1, "target": "b"})",
          "number.jsonl:1: \"source\" is number");
  refused("null.jsonl", R"({"source": "a", "target": null})", "\"target\" is null");
  refused("bytes.jsonl", "{\"source\": \"\xff\", \"target\": \"b\"}\n", "bytes.jsonl:1");
  refused("columns.csv", "source,other\na,b\n", "target");
  refused("short.csv", "source,target\na,b\nc\n", "short.csv:2");
  refused("plain.txt", "words\n", "pairs are read from JSON lines");
  refused("empty.jsonl", "\n\n", "no pairs");
  refused("cut.jsonl.gz", gzip(good).substr(0, 20), "cut.jsonl.gz");
  EXPECT_FALSE(open(config_of("nowhere.jsonl")).ok());
  EXPECT_EQ(open({}).error().code, ErrorCode::kUsage);
  const auto large = PairsSource::open(config_of("pairs.jsonl"), 64, 32, 300, 1);
  ASSERT_FALSE(large.ok());
  EXPECT_TRUE(contains(large.error().message, "model.vocabulary=0")) << large.error().message;
}

TEST_F(Pairs, DamagedFilesAreReadOrRefused) {
  PhiloxSequence random(5, 1);
  const std::string text = json_lines({{"a first", "b"}, {"c", "d e"}}, "source", "target");
  int read = 0, refused_ones = 0;
  for (int i = 0; i < 120; ++i) {
    put_file(at("mutated.jsonl"), mutate(text, random));
    auto source = open(config_of("mutated.jsonl"));
    (source.ok() ? read : refused_ones) += 1;
    if (!source.ok()) continue;
    Batch batch;
    batch.resize(8, 64, 32);
    ASSERT_TRUE(source.value().fill(i, batch).ok());
    ASSERT_TRUE(check_ids(batch, 3000).ok());
  }
  EXPECT_GT(refused_ones, 20);
  EXPECT_GT(read, 0);
}

TEST_F(Pairs, TrainTheSameUnderEveryLayoutAndInParts) {
  const auto train_on = [&](const std::string& name, int ranks, const std::string& options) {
    const auto outcome = testing::quintet(
        "launch -n " + std::to_string(ranks) +
        " --threads 1 -- train --model tiny --set model.vocabulary=0 --set data.kind=pairs --set "
        "data.files='[\"" +
        at("pairs.jsonl").string() + "\"]' --set data.tokenizer=" + at("model").string() +
        " --source 40 --target 24 --micro-batch 2 --set batch.global=8 --set output.resume=true "
        "--set schedule.kind=constant --set output.folder=" +
        at(name).string() + " " + options);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(outcome.says(fmt::format("{} pairs", texts().size()))) << outcome.output;
    std::vector<double> losses;
    std::ifstream file(at(name) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      losses.push_back(number_in(parse_json(line, name).value(), "loss", 0));
    return losses;
  };
  const auto alone = train_on("alone", 1, "--set train.steps=4");
  ASSERT_EQ(alone.size(), 4U);  // past the first epoch
  const auto same = [&](const std::vector<double>& losses) {
    ASSERT_EQ(losses.size(), alone.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], alone[i], 1e-5 * alone[i]) << i;
  };
  same(train_on("tensor", 2, "--tp 2 --set train.steps=4"));
  same(train_on("pipeline", 2, "--pp 2 --set train.steps=4"));
  same(train_on("sharded", 2, "--zero 3 --set train.steps=4"));
  train_on("parts", 1, "--set train.steps=2");
  same(train_on("parts", 2, "--zero 1 --set train.steps=4"));
  const auto changed = testing::quintet(
      "train --model tiny --set model.vocabulary=0 --set data.kind=pairs --set data.files='[\"" +
      at("two").string() + "\"]' --set data.tokenizer=" + at("model").string() +
      " --source 40 --target 24 --set batch.global=8 --micro-batch 2 --set output.resume=true "
      "--set output.folder=" +
      at("alone").string());
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_TRUE(changed.says("data.files")) << changed.output;
}

TEST_F(Pairs, AreLearnedAndGenerated) {
  const std::vector<TextPair> task = {{"one", "river"}, {"two", "cloud"}, {"three", "stone"}};
  put_file(at("task.jsonl"), json_lines(task, "source", "target"));
  RunConfig config;
  config.model.vocabulary = 0;
  config.batch.micro_batch = 6;
  config.batch.source = 8;
  config.batch.target = 16;
  config.train.steps = 250;
  config.train.threads = 1;
  config.schedule.kind = "constant";
  config.schedule.peak = 0.005;
  config.schedule.warmup_steps = 10;
  config.data.kind = "pairs";
  config.data.pairs = config_of("task.jsonl");
  config.output.folder = at("learned").string();
  config.output.log_every = 1000;
  const auto result = train(config, *make_single_world());
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_LT(result.value().final_loss, 0.1);
  for (const TextPair& pair : task) {
    const auto outcome =
        testing::quintet("generate " + at("learned/checkpoints/step-00000250").string() +
                         " --threads 1 --tokenizer " + at("model").string() + " " + pair.source);
    EXPECT_TRUE(outcome.says(pair.target)) << outcome.output;
    // The run's folder is its newest checkpoint, whose data has a tokenizer.
    const auto of_run =
        testing::quintet("generate " + at("learned").string() + " --threads 1 " + pair.source);
    EXPECT_TRUE(of_run.says(pair.target)) << of_run.output;
  }
  const auto blank = testing::quintet("generate " + at("learned").string() + " 'one <extra_id_0>'");
  EXPECT_EQ(blank.exit_code, 3);
  EXPECT_TRUE(blank.says("the tokenizer has no blanks")) << blank.output;
  std::filesystem::rename(at("model"), at("elsewhere"));
  const auto lost = testing::quintet("generate " + at("learned").string() + " one");
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_TRUE(lost.says("which it was trained with, is not there")) << lost.output;
  EXPECT_TRUE(lost.says("--tokenizer FILE")) << lost.output;
}

TEST_F(Pairs, AModelOfSyntheticDataHasNoTokenizer) {
  const std::string run = at("synthetic").string();
  const auto trained =
      testing::quintet("train --threads 1 --set train.steps=1 --set output.folder=" + run);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const auto outcome = testing::quintet("generate " + run + " one");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(outcome.says("it was trained on synthetic data")) << outcome.output;
  EXPECT_EQ(testing::quintet("generate " + run + " --ids '5 6 7' --threads 1").exit_code, 0);

  // With some tokenizer all the same: what follows a blank has no more space before it than its
  // text.
  const auto text =
      testing::run_shell("sh " QUINTET_SOURCE_DIR "/examples/make_text.sh " + at("text").string());
  ASSERT_EQ(text.exit_code, 0) << text.output;
  const auto tokenizer = testing::quintet("tokenizer train --vocabulary 500 --out " +
                                          at("t.model").string() + " " + at("text").string());
  ASSERT_EQ(tokenizer.exit_code, 0) << tokenizer.output;
  for (const std::string after : {".", " is"}) {
    const auto blank =
        testing::quintet("generate --threads 1 --max-tokens 4 " + run + " --tokenizer " +
                         at("t.model").string() + " 'Oslo <extra_id_0>" + after + "'");
    EXPECT_TRUE(blank.says("]" + after + "\n")) << blank.output;
  }
}

TEST_F(Pairs, KeysThatHaveNoEffectAreRefused) {
  const auto refuses = [](const std::string& options, const std::string& says) {
    const auto outcome = testing::quintet("train --set train.steps=1 " + options);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_TRUE(outcome.says(says)) << outcome.output;
  };
  refuses("--set data.tokenizer=x", "data.tokenizer has no effect with data.kind = \"synthetic\"");
  for (const char* key :
       {"source_field=x", "mixture=x", "exclude=en", "weights=en=2", "alpha=1", "sentinels=200",
        "prefix_split=fixed", "prefix_target=0.5", "ul2_regular=1"}) {
    const std::string given = key;
    refuses("--set data." + given, "data." + given.substr(0, given.find('=')) + " has no effect");
  }
  refuses("--set data.kind=pairs --set data.tokenizer=x --target 8 --set data.split=held_out",
          "data.split has no effect with data.kind = \"pairs\"");
  refuses("--set data.kind=pairs --target 8", "needs data.tokenizer");
  refuses("--set data.kind=pairs --set data.tokenizer=x", "needs batch.target");
  refuses("--set data.kind=pairs --set data.tokenizer=x --target 8", "needs data.files");
}

}  // namespace
}  // namespace quintet
