// Building a corpus: what is in it, that it does not depend on threads or interruptions, and that
// bad input is an error that leaves nothing half done.
#include "data/corpus/build.h"

#include <cmath>

#include <gtest/gtest.h>

#include "data/corpus/build_state.h"
#include "tests/data/build_fixture.h"

namespace quintet {
namespace {

// Every document of a split, in the order of the shards.
std::vector<std::vector<std::int32_t>> read_documents(const Path& folder,
                                                      const std::string& language, Split split) {
  std::vector<std::vector<std::int32_t>> documents;
  const Manifest manifest = load_manifest(folder).value();
  for (const ShardEntry& entry : manifest.shards) {
    if (entry.language != language || entry.split != split) continue;
    const TokenShard shard = TokenShard::open(folder / entry.name).value();
    EXPECT_TRUE(shard.verify().ok());
    EXPECT_EQ(shard.tokens(), entry.tokens);
    for (std::uint64_t d = 0; d < shard.documents(); ++d) {
      auto& ids = documents.emplace_back(shard.document_end(d) - shard.document_begin(d));
      shard.range(shard.document_begin(d), shard.document_end(d)).copy_to(ids);
    }
  }
  return documents;
}

TEST_F(BuildTest, HoldsEveryDocumentOnceInOrder) {
  const TemporaryFolder folder;
  BuildOptions simple = options(folder.path() / "out");
  simple.inputs = {path("text/bb").string()};
  simple.deduplicate = false;
  simple.held_out = 0;
  const auto report = build_corpus(simple, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto documents = read_documents(folder.path() / "out", "bb", Split::kTrain);
  const auto lines = split_lines(sample_lines(21, 1 << 20, 1000));
  const Tokenizer tokenizer = Tokenizer::open(path("model")).value();
  Encoder encoder(tokenizer, 1 << 12);
  ASSERT_EQ(documents.size(), lines.size());
  std::int64_t tokens = 0, bytes = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(documents[i], our_ids(encoder, lines[i])) << i;
    tokens += static_cast<std::int64_t>(documents[i].size());
    bytes += static_cast<std::int64_t>(lines[i].size());
  }
  const CorpusCounts counts = report.value().manifest.languages.at("bb").at(Split::kTrain);
  EXPECT_EQ(counts.tokens, tokens);
  EXPECT_EQ(counts.bytes, bytes);
  EXPECT_EQ(counts.documents, static_cast<std::int64_t>(lines.size()));
  EXPECT_GT(report.value().manifest.shards.size(), 1u);
  EXPECT_EQ(report.value().manifest.layout.token_bytes, 2u);
  EXPECT_EQ(report.value().manifest.special.sentinels, 100);
  EXPECT_EQ(report.value().manifest.special.first_sentinel, tokenizer.vocabulary().size() + 99);
  EXPECT_EQ(read_file(folder.path() / "out" / kTokenizerFile).value(),
            read_file(path("model")).value());
}

TEST_F(BuildTest, DuplicatesAndHeldOutDocuments) {
  const TemporaryFolder folder;
  const auto report = build_corpus(options(folder.path() / "out"), {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Manifest& manifest = report.value().manifest;
  EXPECT_EQ(manifest.left_out.at("duplicate"), 4);  // of the five small files
  const auto train = manifest.total(Split::kTrain), held_out = manifest.total(Split::kHeldOut);
  const double share = static_cast<double>(held_out.documents) /
                       static_cast<double>(train.documents + held_out.documents);
  // Four standard deviations.
  EXPECT_NEAR(share, 0.02, 4 * std::sqrt(0.02 * 0.98 / static_cast<double>(train.documents)));
}

TEST_F(BuildTest, ThreadsDoNotMatter) {
  for (const int threads : {1, 3, 7}) {
    if (kThreadSanitizer && threads == 1) continue;
    const TemporaryFolder folder;
    BuildOptions some = options(folder.path() / "out");
    some.threads = threads;
    ASSERT_TRUE(build_corpus(some, {}).ok());
    expect_same(folder.path() / "out", fmt::format("{} threads", threads));
  }
}

TEST_F(BuildTest, RunAgainItDoesNothing) {
  const TemporaryFolder folder;
  ASSERT_TRUE(build_corpus(options(folder.path() / "out"), {}).ok());
  const auto again = build_corpus(options(folder.path() / "out"), {});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again.value().already_complete);
  expect_same(folder.path() / "out", "second run");
  BuildOptions other = options(folder.path() / "out");
  other.held_out = 0.5;
  const auto refused = build_corpus(other, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
}

TEST_F(BuildTest, ATokenizerReplacedMeanwhileIsNotTheCorpuss) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(path("model"), folder.path() / "model");
  BuildOptions some = options(folder.path() / "out");
  some.inputs = {path("text/aa/small0.txt").string()};
  some.tokenizer = folder.path() / "model";
  some.held_out = 0;
  BuildEnvironment environment;
  environment.progress = [&](const BuildProgress&) { put_file(some.tokenizer, "another"); };
  ASSERT_TRUE(build_corpus(some, environment).ok());
  EXPECT_TRUE(read_file(folder.path() / "out" / kTokenizerFile).value() ==
              read_file(path("model")).value());
}

// Stopped every few commits, at other places with other numbers of threads, until it is done.
TEST_F(BuildTest, InterruptedAgainAndAgainItGivesTheSameBytes) {
  PhiloxSequence random(1, 1);
  for (int round = 0; round < (kThreadSanitizer ? 1 : 3); ++round) {
    const TemporaryFolder folder;
    int runs = 0;
    for (bool done = false; !done; ++runs) {
      ASSERT_LT(runs, 100);
      std::atomic<bool> stop = false;
      std::uint32_t commits = 1 + random.below(12);
      BuildEnvironment environment;
      environment.stop = &stop;
      environment.checkpoint_seconds = random.below(2) == 0 ? 0 : 1000;
      environment.progress = [&](const BuildProgress&) { stop = stop || --commits == 0; };
      BuildOptions some = options(folder.path() / "out");
      some.threads = 1 + static_cast<int>(random.below(4));
      const auto report = build_corpus(some, environment);
      done = report.ok();
      if (!done) {
        ASSERT_EQ(report.error().code, ErrorCode::kInterrupted) << report.error().message;
        EXPECT_FALSE(std::filesystem::exists(folder.path() / "out" / kManifestFile));
        EXPECT_FALSE(load_manifest(folder.path() / "out").ok());
      }
    }
    EXPECT_GT(runs, 2);
    expect_same(folder.path() / "out", fmt::format("round {}", round));
  }
}

TEST_F(BuildTest, NamesThatAreNoUtf8AreNamesLikeOthers) {
  const TemporaryFolder folder;
  BuildOptions some = options(folder.path() / "out");
  some.languages = {};
  const auto build = [&](const std::string& name) {
    // The same file under each name: of the digest's parts only the name differs.
    std::filesystem::remove_all(folder.path() / "in");
    std::filesystem::create_directory(folder.path() / "in");
    std::filesystem::copy_file(path("text/aa/small0.txt"), folder.path() / "in" / name);
    std::filesystem::last_write_time(folder.path() / "in" / name,
                                     std::filesystem::last_write_time(path("text/aa/small0.txt")));
    some.inputs = {(folder.path() / "in").string()};
    return build_corpus(some, {});
  };
  const auto first = build("caf\xe9.txt");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(build("caf\xe9.txt").value().already_complete);
  const auto other = build("caf\xe8.txt");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kUsage);
}

struct Refused {
  const char* file;
  std::string contents;
  std::vector<const char*> says;
};
class BadText : public BuildTest, public ::testing::WithParamInterface<Refused> {};

TEST_P(BadText, IsRefusedByNameAndLine) {
  const TemporaryFolder folder;
  put_file(folder.path() / GetParam().file, GetParam().contents);
  BuildOptions some = options(folder.path() / "out");
  some.inputs = {(folder.path() / GetParam().file).string()};
  some.languages = LanguageRule::fixed("xx").value();
  some.bad_lines = 2;
  const auto report = build_corpus(some, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kBadInput) << report.error().message;
  for (const char* text : GetParam().says) {
    EXPECT_NE(report.error().message.find(text), std::string::npos) << report.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out" / kManifestFile));
}

const std::string kGood = "{\"text\": \"good\"}\n";
INSTANTIATE_TEST_SUITE_P(
    All, BadText,
    ::testing::Values(
        Refused{"a.jsonl",
                kGood + "{\n{\n" + kGood + "{broken\n",
                {"a.jsonl:5:", "not valid JSON", "2 bad lines before"}},
        Refused{"a.jsonl", kGood + "{}\n{}\n{\"txt\": 1}\n", {"a.jsonl:4:", "no field \"text\""}},
        Refused{"a.txt.gz", gzip("some text\nand more\n").substr(0, 30), {"a.txt.gz", "cut short"}},
        Refused{
            "a.txt.zst", zstd("some text\nand more\n").substr(0, 20), {"a.txt.zst", "cut short"}},
        Refused{"a.txt.gz", "plain text, not gzip\n", {"a.txt.gz", "not valid gzip"}},
        Refused{"a.txt.zst", "plain text, not zstd\n", {"a.txt.zst", "not valid zstd"}},
        Refused{"a.md", "text\n", {"a.md", "unknown kind"}}));

TEST_F(BuildTest, BadLinesUnderTheLimitAreCounted) {
  const TemporaryFolder folder;
  put_file(folder.path() / "a.jsonl",
           kGood + "{\nx\n" + kGood + "{\"text\": 3}\n{\"text\": \"better\"}\n");
  BuildOptions some = options(folder.path() / "out");
  some.inputs = {(folder.path() / "a.jsonl").string()};
  some.languages = {};
  some.held_out = 0;
  const auto report = build_corpus(some, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report.value().bad_lines, 3);
  EXPECT_EQ(report.value().manifest.left_out.at("bad line"), 3);
  EXPECT_EQ(report.value().manifest.left_out.at("duplicate"), 1);
  EXPECT_EQ(report.value().manifest.languages.at("und").at(Split::kTrain).documents, 2);
  EXPECT_NE(report.value().first_bad_lines.at(0).find("a.jsonl:2: not valid JSON"),
            std::string::npos);
}

// What a bad line is quoted with is cut between characters, or the state could not be written.
TEST_F(BuildTest, ABadLineIsQuotedInWholeCharacters) {
  const TemporaryFolder folder;
  std::string name = "x";
  for (int i = 0; i < 30; ++i) name += "\u00e9";
  put_file(folder.path() / "a.jsonl",
           "{\"text\": \"a\", \"l\": \"" + name + "\"}\n{\"text\": \"a\", \"l\": \"de\"}\n");
  BuildOptions some = options(folder.path() / "out");
  some.inputs = {(folder.path() / "a.jsonl").string()};
  some.languages = LanguageRule::parse("field:l").value();
  some.held_out = 0;
  BuildEnvironment environment;
  environment.checkpoint_seconds = 0;
  const auto report = build_corpus(some, environment);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_NE(report.value().first_bad_lines.at(0).find(name.substr(0, 39) + "\":"),
            std::string::npos)
      << report.value().first_bad_lines.at(0);
}

TEST_F(BuildTest, LinesBeyondTheLimitAreCountedWhereverTheyStand) {
  if (kThreadSanitizer) GTEST_SKIP() << "a single block, by one thread";
  const std::string huge = std::string(kMaxDocumentBytes + 1, 'x') + "\n";
  for (const std::string& text : {huge, "a line\n" + huge, huge + "a line\n", huge + huge}) {
    const TemporaryFolder folder;
    put_file(folder.path() / "text.txt", text);
    put_file(folder.path() / "other.txt", "a line that is taken\n");
    BuildOptions some = options(folder.path() / "out");
    some.inputs = {folder.path().string()};
    some.languages = {};
    some.deduplicate = false;
    const auto report = build_corpus(some, {});
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_NE(report.value().first_bad_lines.at(0).find("text.txt:"), std::string::npos);
    const std::int64_t expected = text == huge + huge ? 2 : 1;
    EXPECT_EQ(report.value().manifest.left_out.at("too long"), expected) << text.size();
  }
}

TEST_F(BuildTest, LengthFiltersAndLanguagesByField) {
  const TemporaryFolder folder;
  put_file(folder.path() / "a.jsonl",
           "{\"text\": \"sh\u00f6rt\", \"l\": \"de\"}\n{\"text\": \"long enough\", \"l\": \"de\"}\n"
           "{\"text\": \"far too long for this\", \"l\": \"en\"}\n{\"text\": \"just right\", "
           "\"l\": \"en\"}\n");
  BuildOptions some = options(folder.path() / "out");
  some.inputs = {(folder.path() / "a.jsonl").string()};
  some.languages = LanguageRule::parse("field:l").value();
  some.min_characters = 6;
  some.max_characters = 15;
  some.held_out = 0;
  const auto report = build_corpus(some, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Manifest& manifest = report.value().manifest;
  EXPECT_EQ(manifest.left_out,
            (std::map<std::string, std::int64_t>{{"too long", 1}, {"too short", 1}}));
  EXPECT_EQ(manifest.languages.at("de").at(Split::kTrain).documents, 1);
  EXPECT_EQ(manifest.languages.at("en").at(Split::kTrain).documents, 1);
}

TEST_F(BuildTest, OtherFoldersAreLeftAlone) {
  const TemporaryFolder folder;
  put_file(folder.path() / "out/train/precious", "mine");
  const auto report = build_corpus(options(folder.path() / "out"), {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kUsage);
  EXPECT_EQ(read_file(folder.path() / "out/train/precious").value(), "mine");
}

TEST_F(BuildTest, AnUnfinishedBuildOfOtherFilesIsNotContinued) {
  const TemporaryFolder folder;
  std::atomic<bool> stop = true;
  BuildEnvironment environment;
  environment.stop = &stop;
  ASSERT_FALSE(build_corpus(options(folder.path() / "out"), environment).ok());
  BuildOptions other = options(folder.path() / "out");
  other.inputs = {path("text/cc").string()};
  const auto report = build_corpus(other, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kUsage);
  EXPECT_NE(report.error().message.find("unfinished build"), std::string::npos);
  // A state that is damaged is not guessed at.
  put_file(folder.path() / "out" / kBuildStateFile, "{\"plan\": 3}");
  EXPECT_EQ(build_corpus(options(folder.path() / "out"), {}).error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace quintet
