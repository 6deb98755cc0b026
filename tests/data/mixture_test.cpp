// Several corpora in one run: by weight, for some epochs, in some phases.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "data/loader/batch_plan.h"
#include "data/loader/corpus_source.h"
#include "tests/data/numbered_corpus.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

class MixtureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    numbered_corpus(a(), {{"de", std::vector<std::uint32_t>(500, 40)},
                          {"fr", std::vector<std::uint32_t>(100, 40)}});
    numbered_corpus(b(), {{"de", std::vector<std::uint32_t>(50, 40)},
                          {"zh", std::vector<std::uint32_t>(2000, 40)}});
  }
  Path a() const { return folder_.path() / "a"; }
  Path b() const { return folder_.path() / "b"; }
  Result<CorpusSource> open(const std::vector<std::string>& mixture, double alpha = 1,
                            bool pack = false) const {
    CorpusConfig config;
    config.mixture = mixture;
    config.alpha = alpha;
    config.pack = pack;
    return CorpusSource::open(config, 64, 64, kNumberedVocabulary, 3);
  }
  // Of so many samples: how many of each corpus and language.
  static std::map<std::string, int> counts(const CorpusSource& source, std::int64_t begin,
                                           std::int64_t end) {
    std::map<std::string, int> seen;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto stretch = source.stretch_of(i).value();
      ++seen[Path(stretch.corpus).filename().string() + "/" + stretch.language];
    }
    return seen;
  }

  TemporaryFolder folder_;
};

TEST_F(MixtureTest, CorporaAndLanguagesByWeight) {
  const CorpusSource source =
      open({a().string() + " weight=3 weights=de:1,fr:2", b().string() + " only=zh"}).value();
  auto seen = counts(source, 0, 40000);
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_NEAR(seen["a/de"], 10000, 500);
  EXPECT_NEAR(seen["a/fr"], 20000, 500);
  EXPECT_NEAR(seen["b/zh"], 10000, 500);
  // By alpha: in proportion to examples, or equally.
  seen = counts(open({a().string()}, 1).value(), 0, 24000);
  EXPECT_NEAR(seen["a/de"], 20000, 500);
  seen = counts(open({a().string() + " alpha=0"}, 1).value(), 0, 24000);
  EXPECT_NEAR(seen["a/de"], 12000, 500);
  seen = counts(open({a().string() + " exclude=de", b().string() + " exclude=zh"}).value(), 0, 100);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen.contains("a/fr") && seen.contains("b/de"));
}

// A text is used so often and no more; then the others have its part.
TEST_F(MixtureTest, EpochsAreALimit) {
  for (const bool pack : {false, true}) {
    const CorpusSource source =
        open({a().string() + " epochs=2 only=de", b().string() + " only=zh weight=1"}, 1, pack)
            .value();
    const auto& phases = source.mixture().phases();
    ASSERT_EQ(phases.size(), 2u);
    const std::uint64_t rows = source.languages()[0].rows;
    const auto end = static_cast<std::int64_t>(phases[1].begin);
    auto seen = counts(source, 0, end);
    EXPECT_EQ(static_cast<std::uint64_t>(seen["a/de"]), 2 * rows);
    EXPECT_NEAR(seen["b/zh"], seen["a/de"], 200);
    seen = counts(source, end, end + 1000);
    EXPECT_EQ(seen["b/zh"], 1000);
    EXPECT_EQ(source.mixture().end(), UINT64_MAX);
  }
  // All are used up: whoever asks for more is told.
  CorpusSource source = open({a().string() + " epochs=1"}).value();
  const auto end = static_cast<std::int64_t>(source.mixture().end());
  const auto languages = source.languages();
  EXPECT_EQ(static_cast<std::uint64_t>(end), languages[0].rows + languages[1].rows);
  Batch batch;
  batch.resize(1, 64, 64);
  EXPECT_TRUE(source.fill(end - 1, batch).ok());
  const Status status = source.fill(end, batch);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("used up"), std::string::npos);
}

// Phases change the weights, and a text goes on where it was: within an epoch nothing comes twice.
TEST_F(MixtureTest, PhasesGoOnWhereTheyWere) {
  const CorpusSource source = open({a().string() + " only=de until=100", b().string() + " only=zh",
                                    a().string() + " only=de weight=9 from=100"})
                                  .value();
  ASSERT_EQ(source.mixture().phases().size(), 2u);
  auto seen = counts(source, 0, 100);
  EXPECT_NEAR(seen["a/de"], 50, 20);
  seen = counts(source, 100, 1100);
  EXPECT_NEAR(seen["a/de"], 900, 50);
  std::set<std::pair<std::uint64_t, std::uint64_t>> places;
  std::uint64_t epoch = 0;
  for (std::int64_t i = 0; i < 2000; ++i) {
    const auto stretch = source.stretch_of(i).value();
    if (stretch.language != "de") continue;
    EXPECT_GE(stretch.epoch, epoch);
    epoch = stretch.epoch;
    EXPECT_TRUE(places.insert({stretch.epoch, stretch.begin}).second) << "sample " << i;
  }
  EXPECT_GT(epoch, 1u);
}

// The same samples whatever the layout and however often a run is interrupted.
TEST_F(MixtureTest, LayoutsAndInterruptionsDoNotMatter) {
  const std::vector<std::string> mixture = {a().string() + " epochs=1.5",
                                            b().string() + " weight=2 from=37",
                                            b().string() + " only=de until=200"};
  std::map<std::int64_t, std::vector<std::int32_t>> expected;
  for (const BatchPlan plan : {BatchPlan{12, 1, 1}, BatchPlan{3, 2, 2}, BatchPlan{1, 3, 4}}) {
    std::map<std::int64_t, std::vector<std::int32_t>> seen;
    for (std::int64_t step = 0; step < 30; step += 10) {  // a new process every ten steps
      for (std::int64_t rank = 0; rank < plan.data_parallel; ++rank) {
        CorpusSource source = open(mixture).value();
        Batch batch;
        batch.resize(plan.micro_batch, 64, 64);
        for (std::int64_t s = step; s < step + 10; ++s) {
          for (std::int64_t micro = 0; micro < plan.accumulate; ++micro) {
            const std::int64_t first = plan.first_sample(s, micro, rank);
            ASSERT_TRUE(source.fill(first, batch).ok());
            for (std::int64_t row = 0; row < plan.micro_batch; ++row) {
              const auto begin = batch.source.begin() + row * 64;
              seen[first + row].assign(begin, begin + 64);
            }
          }
        }
      }
    }
    ASSERT_EQ(seen.size(), 360u);
    if (expected.empty()) expected = seen;
    EXPECT_TRUE(seen == expected);
  }
}

TEST_F(MixtureTest, MistakesAreNamed) {
  const auto says = [&](const std::vector<std::string>& mixture) {
    const auto source = open(mixture);
    return source.ok() ? std::string("ok") : source.error().message;
  };
  const std::string folder = a().string();
  EXPECT_EQ(says({folder}), "ok");
  EXPECT_NE(says({folder + " weight=0"}).find("a number above 0"), std::string::npos);
  EXPECT_NE(says({folder + " color=2"}).find("no key \"color\""), std::string::npos);
  EXPECT_NE(says({folder + " only=xx"}).find("no language \"xx\""), std::string::npos);
  EXPECT_NE(says({folder + " exclude=de,fr"}).find("no tokens"), std::string::npos);
  EXPECT_NE(says({folder + " from=5 until=5"}).find("is nothing"), std::string::npos);
  EXPECT_NE(says({folder + " until=5", folder + " from=9"}).find("nothing is left from sample 5"),
            std::string::npos);
  EXPECT_NE(says({folder + " weights=de"}).find("e.g. de=2"), std::string::npos);
  EXPECT_NE(says({" "}).find("without a folder"), std::string::npos);
  CorpusConfig config;
  // Whoever asks for the folders before a source is opened is told, too.
  config.mixture = {folder + " color=2"};
  EXPECT_NE(config.folders().error().message.find("no key \"color\""), std::string::npos);
  config.mixture = {folder};
  EXPECT_EQ(config.folders().value(), std::vector<std::string>{folder});
  config.folder = folder;
  EXPECT_FALSE(CorpusSource::open(config, 64, 64, kNumberedVocabulary, 3).ok());
}

}  // namespace
}  // namespace quintet
