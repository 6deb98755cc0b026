// Packed rows: every document in every epoch, rows well filled, any row by itself.
#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "data/loader/corpus_source.h"
#include "tests/data/numbered_corpus.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

using Lengths = std::vector<std::uint32_t>;

// Lengths of `tokens` tokens in all, each drawn by `draw`.
template <class Draw>
Lengths lengths_of(std::uint64_t tokens, const Draw& draw) {
  PhiloxSequence random(7, 7);
  Lengths lengths;
  for (std::uint64_t sum = 0; sum < tokens; sum += lengths.back()) lengths.push_back(draw(random));
  return lengths;
}
Lengths fixed_lengths(std::uint64_t tokens, std::uint32_t length) {
  return lengths_of(tokens, [&](PhiloxSequence&) { return length; });
}
// Most are short, some are long, a few are longer than any row.
Lengths mixed_lengths(std::uint64_t tokens) {
  return lengths_of(tokens, [](PhiloxSequence& random) {
    const std::uint32_t kind = random.below(20);
    return kind == 0 ? 1 + random.below(3) : kind == 1 ? random.below(3000) : 5 + random.below(300);
  });
}

// What an epoch of a language shows: how often every token came, and how rows were filled.
struct Epoch {
  std::map<std::uint64_t, int> tokens;        // by number
  std::set<std::vector<std::uint64_t>> rows;  // where the examples of each begin
  std::int64_t whole = 0, cut = 0;            // documents that fit a row
  double source = 0, target = 0;              // shares filled
};

Epoch run_epoch(const PackedStream& stream, const Objective& objective, const RowLimits& limits,
                const TokenStream& tokens, std::uint64_t epoch) {
  Epoch seen;
  std::vector<int> piece_of(tokens.tokens());
  int pieces = 0;
  double source = 0, target = 0;
  for (std::uint64_t i = 0; i < stream.rows(); ++i) {
    const PackedStream::Row row = stream.row(epoch * stream.rows() + i).value();
    EXPECT_EQ(row.epoch, epoch);
    std::int64_t row_source = 0, row_target = 0;
    std::vector<std::uint64_t> begins;
    EXPECT_FALSE(row.pieces().empty());
    for (const PackPiece& piece : row.pieces()) {
      const Denoiser& denoiser = objective.denoisers()[piece.denoiser];
      row_source += denoiser.source_length(piece.tokens, piece.draw);
      row_target += denoiser.target_length(piece.tokens, piece.draw);
      for (std::uint32_t t = 0; t < piece.tokens; ++t) {
        const std::uint64_t token = (piece.begin + t) % tokens.tokens();
        ++seen.tokens[token];
        piece_of[token] = pieces;
      }
      begins.push_back(piece.begin);
      ++pieces;
    }
    EXPECT_LE(row_source, limits.source);
    EXPECT_LE(row_target, limits.target);
    source += static_cast<double>(row_source);
    target += static_cast<double>(row_target);
    std::sort(begins.begin(), begins.end());
    seen.rows.insert(begins);
  }
  const auto rows = static_cast<double>(stream.rows());
  seen.source = source / rows / static_cast<double>(limits.source);
  seen.target = target / rows / static_cast<double>(limits.target);
  EXPECT_TRUE(tokens
                  .for_each_document(
                      {}, 0,
                      [&](const TokenStream::DocumentSpan& document) {
                        const std::uint64_t length = document.end - document.begin;
                        if (length < 2 || length > static_cast<std::uint64_t>(objective.tokens())) {
                          return true;
                        }
                        const bool whole = piece_of[document.begin] == piece_of[document.end - 1];
                        ++(whole ? seen.whole : seen.cut);
                        return true;
                      })
                  .ok());
  return seen;
}

struct Case {
  friend void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }
  std::string name;
  Lengths lengths;
  std::string objective = "span_corruption";
  std::int64_t source = 512, target = 0;
  double fill = 0.95;      // of source or target, whichever is fuller
  double most_cut = 0.01;  // share of the documents that fit a row
};

class Packing : public ::testing::TestWithParam<Case> {};

TEST_P(Packing, EveryDocumentInEveryEpoch) {
  const Case& test = GetParam();
  const TemporaryFolder folder;
  numbered_corpus(folder.path(), {{"aa", test.lengths}});
  CorpusConfig config;
  config.folder = folder.path().string();
  config.pack = true;
  config.objective.name = test.objective;
  config.sentinels = 200;
  const CorpusSource source =
      CorpusSource::open(config, test.source, test.target, kNumberedVocabulary + 100, 5).value();
  const RowLimits limits{test.source, source.target_length()};
  const TokenStream& tokens = source.corpus().stream(Split::kTrain, "aa");
  const PackedStream& stream = *source.languages()[0].packed;
  std::vector<Epoch> epochs;
  for (std::uint64_t e = 0; e < 2; ++e) {
    epochs.push_back(run_epoch(stream, source.objective(), limits, tokens, e));
    const Epoch& epoch = epochs.back();
    // Nothing is dropped, nothing comes twice.
    EXPECT_EQ(epoch.tokens.size(), tokens.tokens());
    for (const auto& [token, count] : epoch.tokens) ASSERT_EQ(count, 1) << "token " << token;
    EXPECT_GE(std::max(epoch.source, epoch.target), test.fill)
        << epoch.source << " and " << epoch.target;
    EXPECT_LE(static_cast<double>(epoch.cut),
              test.most_cut * static_cast<double>(epoch.cut + epoch.whole))
        << epoch.cut << " cut, " << epoch.whole << " whole";
  }
  // Another arrangement in every epoch.
  std::size_t same = 0;
  for (const auto& row : epochs[0].rows) same += epochs[1].rows.contains(row);
  EXPECT_LT(same, epochs[0].rows.size() / 20 + 2);
}

std::vector<Case> cases() {
  const std::uint64_t most = kThreadSanitizer ? 120000 : 400000;
  std::vector<Case> all;
  all.push_back({"fourteen", fixed_lengths(most, 14)});
  // Eight of the first fill 94 % of a row, three of the second 75 %.
  all.push_back({"sixty_six", fixed_lengths(most, 66), "span_corruption", 512, 0, 0.95, 0.03});
  all.push_back(
      {"multiple_of_the_row", fixed_lengths(568 * 500, 142), "span_corruption", 512, 0, 0.95, 0.3});
  all.push_back({"mixed", mixed_lengths(most)});
  all.push_back({"mixed_short_target", mixed_lengths(most), "span_corruption", 512, 114});
  all.push_back({"mixed_ul2", mixed_lengths(most), "ul2", 512, 256, 0.84});
  // A small corpus has too few short documents to fill up rows with: many would be cut.
  all.push_back({"mixed_prefix", mixed_lengths(400000), "prefix_lm", 512, 512, 0.90});
  // Keeping them whole would leave 40 % of every row empty: then they are cut.
  all.push_back({"awkward", fixed_lengths(most, 340), "span_corruption", 512, 0, 0.95, 0.6});
  all.push_back({"longer_than_rows", fixed_lengths(most, 732)});
  all.push_back({"far_longer", fixed_lengths(most, 40001)});
  all.push_back(
      {"single_tokens", lengths_of(30000, [](PhiloxSequence& random) { return random.below(2); })});
  all.push_back({"one_small_row", {30, 20, 1}, "span_corruption", 512, 0, 0.05});
  all.push_back({"two_tokens", {1, 1}, "span_corruption", 512, 0, 0.001});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Lengths, Packing, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// Without packing, too, kinds of denoising that take fewer tokens leave none of them out.
TEST(Stretches, Ul2UsesAllText) {
  const TemporaryFolder folder;
  numbered_corpus(folder.path(), {{"aa", mixed_lengths(200000)}});
  CorpusConfig config;
  config.folder = folder.path().string();
  config.objective.name = "ul2";
  config.sentinels = 200;
  CorpusSource source = CorpusSource::open(config, 512, 256, kNumberedVocabulary + 100, 5).value();
  const std::uint64_t tokens = source.languages()[0].tokens;
  std::vector<int> seen(tokens, 0);
  const auto rows = static_cast<std::int64_t>(source.languages()[0].rows);
  Batch batch;
  batch.resize(1, 512, 256);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::fill(seen.begin(), seen.end(), 0);
    for (std::int64_t i = 0; i < rows; ++i) {
      ASSERT_TRUE(source.fill(epoch * rows + i, batch).ok());
      for (const auto* ids : {&batch.source, &batch.labels}) {
        for (const std::int32_t id : *ids) {
          if (id >= kNumberedBase && id < 2 * kNumberedBase) {
            ++seen.at(static_cast<std::size_t>(id - kNumberedBase));
          }
        }
      }
    }
    EXPECT_LE(*std::max_element(seen.begin(), seen.end()), 1);
    // All but less than a row's, and in the next epoch others.
    EXPECT_LT(std::count(seen.begin(), seen.end(), 0), 600);
  }
}

// A language with less text than a row is no obstacle.
TEST(Stretches, ShortLanguagesAreShortExamples) {
  const TemporaryFolder folder;
  numbered_corpus(folder.path(), {{"aa", mixed_lengths(50000)}, {"bb", {30}}, {"cc", {1}}});
  CorpusConfig config;
  config.folder = folder.path().string();
  config.alpha = 0;
  for (const bool pack : {false, true}) {
    config.pack = pack;
    CorpusSource source = CorpusSource::open(config, 128, 0, kNumberedVocabulary, 5).value();
    EXPECT_FALSE(source.always_full());
    ASSERT_EQ(source.languages().size(), 2u);
    ASSERT_EQ(source.left_out().size(), 1u);  // nothing can be cut out of one token
    EXPECT_NE(source.left_out()[0].find("cc: 1 token"), std::string::npos);
    Batch batch;
    batch.resize(1, 128, source.target_length());
    int seen = 0;
    for (std::int64_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(source.fill(i, batch).ok());
      if (source.stretch_of(i).value().language != "bb") continue;
      ++seen;
      EXPECT_EQ(source.stretch_of(i).value().tokens, 30);
      EXPECT_EQ(batch.lengths, (std::vector<std::int32_t>{30 - 4 + 1 + 1}));
    }
    EXPECT_GT(seen, 3);
  }
}

// Rows do not depend on which were asked for before, nor on how many threads ask.
TEST(PackedStream, AnyRowByItself) {
  const TemporaryFolder folder;
  numbered_corpus(folder.path(), {{"aa", mixed_lengths(400000)}});
  CorpusConfig config;
  config.folder = folder.path().string();
  config.pack = true;
  const auto open = [&] {
    return CorpusSource::open(config, 128, 0, kNumberedVocabulary, 5).value();
  };
  CorpusSource forward = open();
  std::vector<std::vector<std::int32_t>> expected;
  Batch batch;
  batch.resize(1, 128, forward.target_length());
  const auto rows = static_cast<std::int64_t>(forward.languages()[0].rows);
  ASSERT_GT(rows, 2500);  // several regions, and several sets of them
  for (std::int64_t i = 0; i < rows; i += 7) {
    ASSERT_TRUE(forward.fill(i, batch).ok());
    expected.push_back(batch.source);
  }
  CorpusSource backward = open();
  for (std::size_t k = expected.size(); k-- > 0;) {
    ASSERT_TRUE(backward.fill(static_cast<std::int64_t>(k) * 7, batch).ok());
    ASSERT_EQ(batch.source, expected[k]);
  }
}

}  // namespace
}  // namespace quintet
