// Sample i as a function of (corpus, seed, i): every stretch once in an epoch, languages in
// proportion, the same under any number of ranks and after any interruption.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "data/corpus/corpus_writer.h"
#include "data/loader/batch_plan.h"
#include "data/loader/corpus_source.h"
#include "data/loader/permutation.h"
#include "data/loader/prefetch.h"
#include "tests/support/folders.h"
#include "tests/support/sanitizers.h"
#include "tests/support/statistics.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

const std::string kDigest = "00112233445566778899aabbccddeeff";
constexpr std::int32_t kVocabulary = 1 << 22;  // large, so that every token can be another

// A corpus whose tokens are numbered through: language l has ids from (l + 1) << 18 on.
Path make_corpus(const Path& folder, const std::map<std::string, std::size_t>& languages,
                 std::uint64_t shard_tokens = 3000) {
  Manifest manifest;
  manifest.layout = {4, kVocabulary, kDigest};
  manifest.special = {0, 1, 2, kVocabulary - 1, 100};
  CorpusWriter writer(local_files(), folder, manifest.layout, shard_tokens);
  PhiloxSequence random(9, 9);
  std::int32_t base = 1 << 18;
  for (const auto& [language, tokens] : languages) {
    for (std::size_t done = 0; done < tokens;) {
      std::vector<std::int32_t> document(std::min<std::size_t>(tokens - done, random.below(100)));
      for (std::int32_t& id : document) id = base + static_cast<std::int32_t>(done++);
      if (!writer
               .add(Split::kTrain, language, document,
                    {1, 0, 0, static_cast<std::int64_t>(document.size()), 0})
               .ok()) {
        throw std::runtime_error("cannot write");
      }
    }
    base += 1 << 18;
  }
  const CorpusPosition position = writer.finish().value();
  manifest.shards = position.finished;
  for (const auto& [language, splits] : position.series) {
    for (const auto& [split, series] : splits) manifest.languages[language][split] = series.counts;
  }
  put_file(folder / kManifestFile, to_json(manifest));
  return folder;
}

CorpusSource open(const Path& folder, std::uint64_t seed, bool pack = false) {
  CorpusConfig config;
  config.folder = folder.string();
  config.pack = pack;
  auto source = CorpusSource::open(config, 64, 64, kVocabulary, seed);
  if (!source.ok()) throw std::runtime_error(source.error().message);
  return std::move(source).value();
}

Batch make_batch(std::int64_t sequences) {
  Batch batch;
  batch.resize(sequences, 64, 64);
  return batch;
}

TEST(Permutation, VisitsEverythingOnce) {
  for (std::uint64_t size = 1; size < 300; ++size) {
    const Permutation order(size, 3, size);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < size; ++i) seen.insert(order(i));
    ASSERT_EQ(seen.size(), size);
    ASSERT_EQ(*seen.rbegin(), size - 1);
  }
  for (const std::uint64_t size : {65536u, 65537u, 100000u}) {
    if (kThreadSanitizer) break;
    const Permutation order(size, 4, 5);
    std::vector<bool> seen(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      ASSERT_FALSE(seen[order(i)]);
      seen[order(i)] = true;
    }
  }
  const Permutation huge((std::uint64_t{1} << 45) + 3, 1, 1);
  EXPECT_LT(huge(std::uint64_t{1} << 45), (std::uint64_t{1} << 45) + 3);
}

TEST(Permutation, LooksRandom) {
  if (kThreadSanitizer) GTEST_SKIP() << "statistics, by one thread";
  // Where the first places go, over many orders; and the step from one place to the next.
  constexpr std::uint64_t kSize = 20;
  constexpr int kOrders = 20000;
  std::vector<double> first(kSize, 0), second(kSize, 0), step(kSize, 0),
      expected(kSize, kOrders / 20.0);
  for (int i = 0; i < kOrders; ++i) {
    const Permutation order(kSize, 7, static_cast<std::uint64_t>(i));
    ++first[order(0)];
    ++second[order(1)];
    ++step[(order(8) + kSize - order(7)) % kSize];
  }
  EXPECT_LT(chi_square(first, expected), chi_square_limit(kSize));
  EXPECT_LT(chi_square(second, expected), chi_square_limit(kSize));
  EXPECT_EQ(step[0], 0);
  EXPECT_LT(chi_square(std::span(step).subspan(1), std::vector<double>(kSize - 1, kOrders / 19.0)),
            chi_square_limit(kSize - 1));
  // One order: neighbours stay no neighbours.
  const Permutation order(100000, 1, 2);
  std::vector<double> buckets(50, 0), even(50, 2000.0);
  for (std::uint64_t i = 0; i < 100000; ++i)
    ++buckets[(order((i + 1) % 100000) + 100000 - order(i)) % 100000 / 2000];
  EXPECT_LT(chi_square(buckets, even), chi_square_limit(50));
}

TEST(LanguageSchedule, GivesEachItsShareInOrder) {
  const std::vector<std::uint64_t> examples = {1000000, 10000, 100, 1};
  for (const double alpha : {0.0, 0.3, 1.0}) {
    const LanguageSchedule schedule(examples, alpha, 5);
    double total = 0, sum = 0;
    for (const std::uint64_t count : examples) total += std::pow(static_cast<double>(count), alpha);
    std::vector<std::uint64_t> next(examples.size(), 0);
    const std::uint64_t samples = kThreadSanitizer ? 10000 : LanguageSchedule::kBlock + 1000;
    for (std::uint64_t i = 0; i < samples; ++i) {
      const auto place = schedule.at(i);
      ASSERT_EQ(place.number, next[place.language]++);
    }
    for (std::size_t l = 0; l < examples.size(); ++l) {
      const double wanted = std::pow(static_cast<double>(examples[l]), alpha) / total;
      EXPECT_NEAR(schedule.share(l), wanted, 5.0 / LanguageSchedule::kBlock) << alpha << ", " << l;
      sum += schedule.share(l);
    }
    EXPECT_DOUBLE_EQ(sum, 1);
  }
  // Seeds and places matter: the first hundred samples are not all of one language.
  const LanguageSchedule equal(std::vector<std::uint64_t>{5, 5}, 1, 1),
      other(std::vector<std::uint64_t>{5, 5}, 1, 2);
  int differ = 0, ones = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    differ += equal.at(i).language != other.at(i).language;
    ones += static_cast<int>(equal.at(i).language);
  }
  EXPECT_NEAR(differ, 500, 80);
  EXPECT_NEAR(ones, 500, 80);
}

TEST(CorpusSource, EveryStretchOnceAnEpoch) {
  const TemporaryFolder folder;
  const CorpusSource source =
      open(make_corpus(folder.path(), {{"aa", 50000}, {"bb", 7000}, {"cc", 100}}), 3);
  const auto length = static_cast<std::uint64_t>(source.objective().tokens());
  std::map<std::string, std::uint64_t> stretches;
  for (const auto& language : source.languages()) stretches[language.name] = language.rows;
  EXPECT_EQ(stretches.at("aa"), 50000 / length);
  EXPECT_EQ(stretches.at("cc"), 1u);
  std::map<std::pair<std::string, std::uint64_t>, std::set<std::uint64_t>> seen;
  std::map<std::string, std::uint64_t> epochs;
  for (std::int64_t i = 0; i < 20000; ++i) {
    const auto stretch = source.stretch_of(i).value();
    const std::pair epoch(stretch.language, stretch.epoch);
    EXPECT_TRUE(seen[epoch].insert(stretch.begin).second) << "again in an epoch";
    // An epoch begins when the one before it is done.
    ASSERT_GE(stretch.epoch, epochs[stretch.language]);
    if (stretch.epoch > epochs[stretch.language]) {
      EXPECT_EQ(seen.at({stretch.language, epochs[stretch.language]}).size(),
                stretches.at(stretch.language));
      epochs[stretch.language] = stretch.epoch;
    }
  }
  EXPECT_GT(epochs.at("aa"), 2u);
  // Stretches do not overlap, and epochs do not have the same order or cuts.
  const auto& first = seen.at({"aa", 0});
  std::uint64_t before = UINT64_MAX;
  int gaps = 0;
  for (const std::uint64_t begin : first) {
    if (before != UINT64_MAX) {
      EXPECT_GE(begin - before, length);
      gaps += begin - before != length;
    }
    before = begin;
  }
  EXPECT_LE(gaps, 1);  // where the tokens are that are left over
  EXPECT_NE(*first.begin(), *seen.at({"aa", 1}).begin());
}

TEST(CorpusSource, ExamplesAreTheCorpussTokens) {
  const TemporaryFolder folder;
  CorpusSource source = open(make_corpus(folder.path(), {{"aa", 50000}, {"bb", 7000}}), 3);
  Batch batch = make_batch(8);
  EXPECT_TRUE(source.always_full());
  for (std::int64_t first = 0; first < 400; first += 8) {
    ASSERT_TRUE(source.fill(first, batch).ok());
    EXPECT_TRUE(batch.lengths.empty());
    EXPECT_FALSE(batch.packed());
    for (std::int64_t row = 0; row < 8; ++row) {
      const auto stretch = source.stretch_of(first + row).value();
      const std::int32_t base = stretch.language == "aa" ? 1 << 18 : 2 << 18;
      // Kept and cut tokens together are the stretch, each once.
      std::multiset<std::int32_t> tokens;
      for (std::size_t i = 0; i < 64; ++i) {
        const std::int32_t s = batch.source[static_cast<std::size_t>(row) * 64 + i],
                           l = batch.labels[static_cast<std::size_t>(row) * 64 + i];
        if (s >= 1 << 18 && s < kVocabulary - 100) tokens.insert(s);
        if (l >= 1 << 18 && l < kVocabulary - 100) tokens.insert(l);
      }
      std::multiset<std::int32_t> expected;
      for (std::int64_t i = 0; i < stretch.tokens; ++i) {
        const std::int64_t at = static_cast<std::int64_t>(stretch.begin) + i;
        expected.insert(base + static_cast<std::int32_t>(at % (base == 1 << 18 ? 50000 : 7000)));
      }
      ASSERT_EQ(tokens, expected);
      // The decoder's input is the labels, one place later.
      EXPECT_EQ(batch.target[static_cast<std::size_t>(row) * 64], 0);
      for (std::size_t i = 1; i < 64; ++i) {
        const std::int32_t label = batch.labels[static_cast<std::size_t>(row) * 64 + i - 1];
        EXPECT_EQ(batch.target[static_cast<std::size_t>(row) * 64 + i], label < 0 ? 0 : label);
      }
    }
  }
}

// A run over some steps: what every rank saw, as rows of source ids by global sample number.
using Seen = std::map<std::int64_t, std::vector<std::int32_t>>;

void run_steps(const Path& folder, const BatchPlan& plan, std::int64_t first_step,
               std::int64_t steps, Seen& seen) {
  // Every rank opens the corpus for itself, as in another process.
  for (std::int64_t rank = 0; rank < plan.data_parallel; ++rank) {
    CorpusSource source = open(folder, 11);
    Batch batch = make_batch(plan.micro_batch);
    for (std::int64_t step = first_step; step < first_step + steps; ++step) {
      for (std::int64_t micro = 0; micro < plan.accumulate; ++micro) {
        const std::int64_t first = plan.first_sample(step, micro, rank);
        EXPECT_EQ(first, plan.first_sample_of((step - first_step) * plan.accumulate + micro, rank,
                                              first_step));
        ASSERT_TRUE(source.fill(first, batch).ok());
        for (std::int64_t row = 0; row < plan.micro_batch; ++row) {
          const auto begin = batch.source.begin() + row * 64;
          EXPECT_TRUE(
              seen.emplace(first + row, std::vector<std::int32_t>(begin, begin + 64)).second)
              << "sample " << first + row << " twice";
        }
      }
    }
  }
}

TEST(CorpusSource, InterruptionsAndWorldSizesDoNotMatter) {
  if (kThreadSanitizer) GTEST_SKIP() << "ranks are simulated, by one thread";
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 30000}, {"bb", 9000}});
  constexpr std::int64_t kSteps = 40, kGlobal = 24;
  Seen expected;
  run_steps(folder.path(), {24, 1, 1}, 0, kSteps, expected);
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps * kGlobal));
  PhiloxSequence random(1, 2);
  const std::vector<BatchPlan> plans = {{24, 1, 1}, {1, 24, 1}, {6, 1, 4}, {3, 2, 4}, {2, 3, 4},
                                        {12, 1, 2}, {4, 2, 3},  {1, 3, 8}, {1, 1, 24}};
  for (int round = 0; round < 8; ++round) {
    Seen seen;
    for (std::int64_t step = 0; step < kSteps;) {
      // Interrupted after some steps; continued by another number of ranks.
      const BatchPlan& plan = plans[random.below(static_cast<std::uint32_t>(plans.size()))];
      ASSERT_EQ(plan.global_batch(), kGlobal);
      const std::int64_t some = std::min<std::int64_t>(1 + random.below(15), kSteps - step);
      run_steps(folder.path(), plan, step, some, seen);
      step += some;
    }
    ASSERT_TRUE(seen == expected) << "round " << round;
  }
}

TEST(CorpusSource, SeedsDiffer) {
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 50000}});
  CorpusSource a = open(folder.path(), 1), b = open(folder.path(), 1), c = open(folder.path(), 2);
  Batch batch_a = make_batch(4), batch_b = make_batch(4), batch_c = make_batch(4);
  ASSERT_TRUE(a.fill(100, batch_a).ok() && b.fill(100, batch_b).ok() && c.fill(100, batch_c).ok());
  EXPECT_EQ(batch_a.source, batch_b.source);
  EXPECT_EQ(batch_a.labels, batch_b.labels);
  EXPECT_NE(batch_a.source, batch_c.source);
}

TEST(CorpusSource, PacksDocumentsAsSegments) {
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 50000}, {"bb", 7000}});
  CorpusSource source = open(folder.path(), 3, true);
  // Where documents begin, by token id.
  const Corpus corpus = Corpus::open(folder.path()).value();
  std::set<std::int32_t> begins;
  for (const auto& [language, base] : {std::pair("aa", 1 << 18), std::pair("bb", 2 << 18)}) {
    begins.insert(base);
    ASSERT_TRUE(corpus.stream(Split::kTrain, language)
                    .for_each_document({}, 0,
                                       [&, base = base](const TokenStream::DocumentSpan& document) {
                                         // A single token goes with its neighbour.
                                         if (document.end - document.begin > 1) {
                                           begins.insert(base +
                                                         static_cast<std::int32_t>(document.begin));
                                         }
                                         return true;
                                       })
                    .ok());
  }
  Batch batch = make_batch(4);
  std::size_t used = 0, segments_seen = 0;
  for (std::int64_t first = 0; first < 800; first += 4) {
    ASSERT_TRUE(source.fill(first, batch).ok());
    ASSERT_TRUE(batch.packed());
    ASSERT_EQ(batch.lengths.size(), 4u);
    for (std::size_t row = 0; row < 4; ++row) {
      const std::size_t at = row * 64;
      std::map<std::int32_t, std::vector<std::int32_t>> by_segment;
      std::int32_t position[2] = {0, 0};
      for (std::size_t i = 0; i < 64; ++i) {
        for (const bool target : {false, true}) {
          const auto& segments = target ? batch.target_segments : batch.source_segments;
          const auto& positions = target ? batch.target_positions : batch.source_positions;
          const std::int32_t segment = segments[at + i], before = i == 0 ? 0 : segments[at + i - 1];
          // Numbered from 1 without gaps, padding only at the end.
          if (segment == 0) {
            EXPECT_EQ(target ? batch.labels[at + i] : batch.source[at + i], target ? -1 : 0);
            continue;
          }
          ASSERT_TRUE(segment == before || (segment == before + 1 && (i == 0 || before > 0)));
          position[target] = segment == before ? position[target] + 1 : 0;
          EXPECT_EQ(positions[at + i], position[target]);
          const std::int32_t id = target ? batch.labels[at + i] : batch.source[at + i];
          by_segment[segment].push_back(id);
          if (target) {
            // The decoder's input begins anew with every segment.
            EXPECT_EQ(batch.target[at + i], segment != before ? 0 : batch.labels[at + i - 1]);
          }
        }
      }
      // The ids of a segment are consecutive tokens of one document.
      for (const auto& [segment, ids] : by_segment) {
        std::set<std::int32_t> tokens;
        for (const std::int32_t id : ids) {
          if (id >= 1 << 18 && id < kVocabulary - 100) {
            EXPECT_TRUE(tokens.insert(id).second);
          }
        }
        ASSERT_GE(tokens.size(), 2u);
        EXPECT_EQ(static_cast<std::size_t>(*tokens.rbegin() - *tokens.begin()) + 1, tokens.size());
        const auto next = begins.upper_bound(*tokens.begin() + 1);
        EXPECT_TRUE(next == begins.end() || *next > *tokens.rbegin() - 1)
            << "a segment crosses documents";
      }
      segments_seen += by_segment.size();
      const auto length = static_cast<std::size_t>(batch.lengths[row]);
      ASSERT_TRUE(length >= 3 && length <= 64);
      EXPECT_NE(batch.source_segments[at + length - 1], 0);
      used += length;
    }
  }
  EXPECT_GT(segments_seen, 1000u);                       // more than one a row
  EXPECT_GT(static_cast<double>(used), 0.9 * 800 * 64);  // rows are well filled
}

TEST(CorpusSource, MixturesPadWhatIsShort) {
  const TemporaryFolder folder;
  CorpusConfig config;
  config.folder = make_corpus(folder.path(), {{"aa", 50000}}).string();
  config.objective.name = "ul2";
  CorpusSource source = CorpusSource::open(config, 64, 24, kVocabulary, 3).value();
  EXPECT_FALSE(source.always_full());
  Batch batch;
  batch.resize(64, 64, 24);
  ASSERT_TRUE(source.fill(0, batch).ok());
  ASSERT_EQ(batch.lengths.size(), 64u);
  const std::set<std::int32_t> lengths(batch.lengths.begin(), batch.lengths.end());
  EXPECT_GT(lengths.size(), 2u);
  for (std::size_t row = 0; row < 64; ++row) {
    const auto length = static_cast<std::size_t>(batch.lengths[row]);
    EXPECT_EQ(batch.source[row * 64 + length - 1], 1);  // the end of the sequence
    for (std::size_t i = length; i < 64; ++i) EXPECT_EQ(batch.source[row * 64 + i], 0);
  }
}

TEST(CorpusSource, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 50000}, {"tiny", 20}});
  CorpusConfig config;
  config.folder = folder.path().string();
  const auto says = [&](std::int64_t source, std::int64_t target, std::int64_t vocabulary) {
    const auto opened = CorpusSource::open(config, source, target, vocabulary, 1);
    return opened.ok() ? std::string("ok") : opened.error().message;
  };
  EXPECT_EQ(says(64, 64, kVocabulary), "ok");
  EXPECT_NE(says(64, 64, 1000).find("model.vocabulary=0"), std::string::npos);
  EXPECT_NE(says(64, 5, kVocabulary).find("raise the target length"), std::string::npos);
  EXPECT_NE(says(2048, 0, kVocabulary).find("sentinels"), std::string::npos);
  config.only = {"ab"};
  EXPECT_NE(says(64, 64, kVocabulary).find("did you mean \"aa\""), std::string::npos);
  config.only = {};
  config.weights = {"aa"};
  EXPECT_NE(says(64, 64, kVocabulary).find("e.g. de=2"), std::string::npos);
  config.weights = {};
  config.sentinels = 200;
  EXPECT_NE(says(64, 64, kVocabulary).find("100 more than the corpus has"), std::string::npos);
  EXPECT_EQ(says(64, 64, kVocabulary + 100), "ok");
  EXPECT_EQ(says(2048, 0, kVocabulary + 100), "ok");
  config.sentinels = 0;
  config.split = "held_out";
  EXPECT_NE(says(64, 64, kVocabulary).find("no tokens in split held_out"), std::string::npos);
  config.mode_tokens = {"a", "b"};
  EXPECT_NE(says(64, 64, kVocabulary).find("mode_tokens"), std::string::npos);
  config.folder = (folder.path() / "train").string();
  EXPECT_NE(says(64, 64, kVocabulary).find("manifest.json"), std::string::npos);
}

TEST(CorpusSource, ShardsAreOpenedWhenTheyAreNeeded) {
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 50000}});
  CorpusSource before = open(folder.path(), 3);
  std::filesystem::remove(folder.path() / "train/aa-00002.tokens");
  CorpusSource source = open(folder.path(), 3);  // opening touches none
  Batch batch = make_batch(1);
  int failed = 0, worked = 0;
  for (std::int64_t i = 0; i < 600; ++i) {
    const Status status = source.fill(i, batch);
    if (status.ok()) {
      ++worked;
      continue;
    }
    ++failed;
    EXPECT_NE(status.error().message.find("aa-00002.tokens"), std::string::npos);
  }
  EXPECT_GT(failed, 10);
  EXPECT_GT(worked, 400);
}

TEST(CorpusSource, AShardOfAnotherTokenizerIsRefused) {
  const TemporaryFolder folder, other;
  make_corpus(folder.path(), {{"aa", 5000}});
  ShardWriter writer(local_files(), other.path() / "s", {4, kVocabulary, std::string(32, 'f')});
  const std::vector<std::int32_t> ids(100, 5);
  ASSERT_TRUE(writer.add(ids).ok() && writer.finish().ok());
  for (const char* end : {".tokens", ".index"}) {
    std::filesystem::copy_file(Path(other.path() / "s") += end,
                               Path(folder.path() / "train/aa-00000") += end,
                               std::filesystem::copy_options::overwrite_existing);
  }
  CorpusSource source = open(folder.path(), 3);
  Batch batch = make_batch(50);
  const Status status = source.fill(0, batch);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  EXPECT_NE(status.error().message.find("another tokenizer"), std::string::npos)
      << status.error().message;
}

// The loader does not read checksums. Whatever a damaged table of documents says, packing either
// refuses it or stays inside the text.
TEST(CorpusSource, ADamagedTableOfDocumentsDoesNoHarm) {
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 3000}});
  const Path path = folder.path() / "train/aa-00000.index";
  const std::string good = read_file(path).value();
  PhiloxSequence random(3, 4);
  int refused = 0;
  for (int i = 0; i < (kThreadSanitizer ? 4 : 80); ++i) {
    std::string bad = good;
    // The table is at the beginning.
    for (int k = 0; k < 3; ++k) bad[random.below(200)] = static_cast<char>(random.next());
    put_file(path, bad);
    CorpusConfig config;
    config.folder = folder.path().string();
    config.pack = true;
    auto source = CorpusSource::open(config, 64, 64, kVocabulary, 3);
    Batch batch = make_batch(16);
    const Status status = source.ok() ? source.value().fill(0, batch) : source.error();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
    EXPECT_NE(status.error().message.find("aa-00000.index"), std::string::npos);
  }
  EXPECT_GT(refused, kThreadSanitizer ? -1 : 8);
}

TEST(CorpusConfig, ListsItsFields) {
  CorpusConfig config;
  FieldList fields;
  fields.add_section("data", "Data.", config);
  ConfigValues values;
  ASSERT_TRUE(parse_assignment("data.objective=ul2", values).ok());
  ASSERT_TRUE(parse_assignment("data.alpha=0.7", values).ok());
  ASSERT_TRUE(parse_assignment("data.only=[\"de\",\"fr\"]", values).ok());
  ASSERT_TRUE(apply_config(values, fields).ok());
  EXPECT_EQ(config.objective.name, "ul2");
  EXPECT_EQ(config.alpha, 0.7);
  EXPECT_EQ(config.only.size(), 2u);
}

TEST(Prefetcher, GivesTheSameBatchesInOrder) {
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 50000}, {"bb", 7000}});
  CorpusSource source = open(folder.path(), 3), direct = open(folder.path(), 3);
  const BatchPlan plan{4, 2, 3};
  for (const int threads : {1, 3}) {
    PrefetchOptions options{4, 64, 64, threads, 3};
    Prefetcher prefetcher(
        source, [&](std::int64_t n) { return plan.first_sample_of(n, 1, 7); }, options);
    std::set<const Batch*> buffers;
    Batch expected = make_batch(4);
    for (std::int64_t n = 0; n < 60; ++n) {
      const auto batch = prefetcher.next();
      ASSERT_TRUE(batch.ok());
      ASSERT_TRUE(direct.fill(plan.first_sample_of(n, 1, 7), expected).ok());
      ASSERT_EQ(batch.value()->source, expected.source) << n;
      ASSERT_EQ(batch.value()->labels, expected.labels) << n;
      buffers.insert(batch.value());
    }
    EXPECT_EQ(buffers.size(), prefetcher.buffers().size());  // the same memory again and again
  }
}

// A source that says how it is used.
class TestSource final : public BatchSource {
 public:
  Status fill(std::int64_t first, Batch& batch) override {
    if (first == 50) return io_error("sample {} is lost", first);
    if (first == 80) throw std::runtime_error("thrown");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::fill(batch.source.begin(), batch.source.end(), static_cast<std::int32_t>(first));
    return {};
  }
};

TEST(Prefetcher, MeasuresStallsAndPassesErrorsOn) {
  TestSource source;
  Prefetcher prefetcher(source, [](std::int64_t n) { return n * 10; }, {1, 4, 4, 2, 2});
  for (int n = 0; n < 8; ++n) {
    const auto batch = prefetcher.next();
    if (n == 5) {
      ASSERT_FALSE(batch.ok());
      EXPECT_EQ(batch.error().message, "sample 50 is lost");
      continue;
    }
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch.value()->source[3], n * 10);
  }
  EXPECT_GT(prefetcher.stalled_seconds(), 0);
  EXPECT_THROW((void)prefetcher.next(), std::runtime_error);
}

TEST(Prefetcher, KeepsItsMemoryWhereItIs) {
  const TemporaryFolder folder;
  make_corpus(folder.path(), {{"aa", 50000}});
  for (const bool pack : {false, true}) {
    CorpusSource source = open(folder.path(), 3, pack);
    Prefetcher prefetcher(source, [](std::int64_t n) { return n * 4; }, {4, 64, 64, 2, 2});
    std::set<const std::int32_t*> sources, lengths, segments;
    for (int n = 0; n < 30; ++n) {
      const Batch& batch = *prefetcher.next().value();
      sources.insert(batch.source.data());
      if (!pack) continue;
      lengths.insert(batch.lengths.data());
      segments.insert(batch.target_segments.data());
    }
    EXPECT_EQ(sources.size(), 3u);
    if (!pack) continue;
    EXPECT_EQ(lengths.size(), 3u);
    EXPECT_EQ(segments.size(), 3u);
  }
}

TEST(Prefetcher, CanBeDroppedAtAnyTime) {
  TestSource source;
  for (int i = 0; i < 20; ++i) {
    Prefetcher prefetcher(source, [](std::int64_t n) { return n; }, {1, 4, 4, 3, 2});
    for (int n = 0; n < i % 4; ++n) ASSERT_TRUE(prefetcher.next().ok());
  }
}

}  // namespace
}  // namespace quintet
