// Span corruption and its relatives: lengths, order, every token exactly once, all splits equally
// likely.
#include "data/loader/objective.h"

#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "data/loader/stretches.h"
#include "tests/support/statistics.h"

namespace quintet {
namespace {

constexpr SpecialIds kIds = {1, 250099};

std::vector<std::int32_t> numbered(std::int64_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 10);
  return tokens;
}

struct Corrupted {
  std::vector<std::int32_t> source, labels;
};
Corrupted corrupt(const SpanCounts& counts, std::uint64_t stream) {
  Corrupted result;
  result.source.resize(static_cast<std::size_t>(counts.source_length()));
  result.labels.resize(static_cast<std::size_t>(counts.target_length()));
  PhiloxSequence random(17, stream);
  corrupt_spans(numbered(counts.tokens), counts, kIds, random, result.source, result.labels);
  return result;
}

// Puts the cut-out spans back; also reports the lengths of kept and cut parts.
std::vector<std::int32_t> restore(const Corrupted& c, std::vector<std::int64_t>* kept = nullptr,
                                  std::vector<std::int64_t>* cut = nullptr) {
  std::vector<std::int32_t> tokens;
  std::size_t label = 0;
  std::int32_t sentinel = kIds.first_sentinel;
  std::int64_t run = 0;
  EXPECT_EQ(c.source.back(), kIds.eos);
  EXPECT_EQ(c.labels.back(), kIds.eos);
  for (std::size_t i = 0; i + 1 < c.source.size(); ++i) {
    if (c.source[i] != sentinel) {
      EXPECT_LT(c.source[i], 200000) << "a sentinel out of order";
      tokens.push_back(c.source[i]);
      ++run;
      continue;
    }
    EXPECT_GT(run, 0) << "a span without anything kept before it";
    if (kept != nullptr) kept->push_back(run);
    run = 0;
    EXPECT_EQ(c.labels[label++], sentinel);
    std::int64_t length = 0;
    for (; label + 1 < c.labels.size() && c.labels[label] < 200000; ++length)
      tokens.push_back(c.labels[label++]);
    EXPECT_GT(length, 0);
    if (cut != nullptr) cut->push_back(length);
    --sentinel;
  }
  EXPECT_EQ(run, 0) << "the text ends with a span";
  EXPECT_EQ(label + 1, c.labels.size());
  return tokens;
}

TEST(SpanCorruption, HasTheReferencesNumbers) {
  const auto fitted = [](std::int64_t source) {
    return fit_spans(source, INT32_MAX, 100, {0.15, 3}).value();
  };
  EXPECT_EQ(fitted(512).tokens, 568);
  EXPECT_EQ(fitted(512).target_length(), 114);
  EXPECT_EQ(fitted(512).spans, 28);
  EXPECT_EQ(fitted(512).source_length(), 512);
  EXPECT_EQ(fitted(1024).tokens, 1137);
  EXPECT_EQ(fitted(1024).target_length(), 229);
  EXPECT_EQ(fitted(1024).spans, 57);
  // Ties round to even.
  EXPECT_EQ(span_counts(10, {0.25, 3}).noise, 2);
  EXPECT_EQ(span_counts(14, {0.25, 3}).noise, 4);
  EXPECT_EQ(span_counts(20, {0.25, 2}).spans, 2);  // 5 / 2
  EXPECT_EQ(span_counts(28, {0.25, 2}).spans, 4);  // 7 / 2
  // The product is a float's: 0.15f is a little more than 0.15, and 50 * 0.15f is 7.5.
  EXPECT_EQ(span_counts(50, {0.15, 3}).noise, 8);
  // At least one token is cut, at least one kept.
  EXPECT_EQ(span_counts(2, {0.15, 3}).noise, 1);
  EXPECT_EQ(span_counts(2, {0.9, 3}).noise, 1);
}

struct Setting {
  double mean, density;
};
class Settings : public ::testing::TestWithParam<Setting> {};

TEST_P(Settings, EveryTokenComesOutExactlyOnce) {
  const auto [mean, density] = GetParam();
  for (const std::int64_t tokens : {2, 3, 4, 5, 7, 16, 63, 128, 568, 1137}) {
    const SpanCounts counts = span_counts(tokens, {density, mean});
    EXPECT_GE(counts.noise, 1);
    EXPECT_LT(counts.noise, tokens);
    EXPECT_LE(counts.spans, counts.noise);
    for (std::uint64_t i = 0; i < 20; ++i) {
      std::vector<std::int64_t> kept, cut;
      EXPECT_EQ(restore(corrupt(counts, i), &kept, &cut), numbered(tokens));
      EXPECT_EQ(static_cast<std::int64_t>(cut.size()), counts.spans);
      EXPECT_EQ(std::accumulate(cut.begin(), cut.end(), std::int64_t{0}), counts.noise);
    }
  }
}

// The probability that the first of `parts` parts of `total` has length k, all splits being equally
// likely: the ways to split the rest, over all ways.
std::vector<double> first_part(std::int64_t total, std::int64_t parts) {
  const auto log_choose = [](double n, double k) {
    return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
  };
  std::vector<double> p;
  for (std::int64_t k = 1; k <= total - parts + 1; ++k) {
    p.push_back(
        std::exp(log_choose(static_cast<double>(total - k - 1), static_cast<double>(parts - 2)) -
                 log_choose(static_cast<double>(total - 1), static_cast<double>(parts - 1))));
  }
  return p;
}

TEST_P(Settings, SpansAreUniform) {
  const auto [mean, density] = GetParam();
  const SpanCounts counts = span_counts(mean < 64 ? 568 : 2000, {density, mean});
  ASSERT_GE(counts.spans, 2);
  constexpr int kDraws = 20000;
  // The first part stands for all: splits are exchangeable. So does the last, from the other end.
  std::map<std::int64_t, double> seen[4];
  for (int i = 0; i < kDraws; ++i) {
    std::vector<std::int64_t> kept, cut;
    restore(corrupt(counts, static_cast<std::uint64_t>(i)), &kept, &cut);
    ++seen[0][kept.front()];
    ++seen[1][cut.front()];
    ++seen[2][kept.back()];
    ++seen[3][cut.back()];
  }
  for (int which = 0; which < 4; ++which) {
    const std::int64_t total = which % 2 == 0 ? counts.tokens - counts.noise : counts.noise;
    const std::vector<double> p = first_part(total, counts.spans);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-9);
    // Lengths are taken together until ten are expected.
    std::vector<double> observed(1, 0), expected(1, 0);
    for (std::size_t k = 0; k < p.size(); ++k) {
      observed.back() += seen[which][static_cast<std::int64_t>(k) + 1];
      expected.back() += p[k] * kDraws;
      if (expected.back() >= 10 && k + 1 < p.size()) {
        observed.push_back(0);
        expected.push_back(0);
      }
    }
    if (expected.back() < 10 && expected.size() > 1) {
      expected[expected.size() - 2] += expected.back();
      observed[observed.size() - 2] += observed.back();
      expected.pop_back();
      observed.pop_back();
    }
    ASSERT_GT(expected.size(), 2u);
    EXPECT_LT(chi_square(observed, expected), chi_square_limit(expected.size())) << which;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Settings,
                         ::testing::Values(Setting{3, 0.15}, Setting{8, 0.15}, Setting{3, 0.5},
                                           Setting{8, 0.5}, Setting{64, 0.15}, Setting{64, 0.5}));

TEST(SpanCorruption, AllSplitsAreEquallyLikely) {
  // Small enough to count every outcome: 4 of 10 cut in 3 spans; 3 * 10 ways.
  SpanCounts counts;
  counts.tokens = 10;
  counts.noise = 4;
  counts.spans = 3;
  std::map<std::vector<std::int32_t>, double> seen;
  constexpr int kDraws = 60000;
  for (int i = 0; i < kDraws; ++i) ++seen[corrupt(counts, static_cast<std::uint64_t>(i)).source];
  ASSERT_EQ(seen.size(), 30u);
  std::vector<double> observed, expected(30, kDraws / 30.0);
  for (const auto& [source, count] : seen) observed.push_back(count);
  EXPECT_LT(chi_square(observed, expected), chi_square_limit(30));
}

ObjectiveIds ids_with(std::int64_t sentinels) {
  ObjectiveIds ids;
  ids.special = kIds;
  ids.sentinels = sentinels;
  return ids;
}

TEST(Objective, RefusesMoreSpansThanSentinels) {
  ObjectiveConfig config;
  for (const auto& [source, density] : {std::pair(2048, 0.15), std::pair(512, 0.5)}) {
    config.spans = {density, 3};
    const auto objective = Objective::create(config, source, 0, ids_with(100));
    ASSERT_FALSE(objective.ok());
    EXPECT_EQ(objective.error().code, ErrorCode::kUsage);
    EXPECT_NE(objective.error().message.find("100 sentinels"), std::string::npos)
        << objective.error().message;
  }
  config.spans = {0.15, 3};
  EXPECT_TRUE(Objective::create(config, 1024, 0, ids_with(100)).ok());
  EXPECT_FALSE(Objective::create(config, 1024, 0, ids_with(56)).ok());
  EXPECT_TRUE(Objective::create(config, 1024, 229, ids_with(57)).ok());
  EXPECT_FALSE(Objective::create(config, 1024, 228, ids_with(57)).ok());
  EXPECT_FALSE(Objective::create(config, 2, 0, ids_with(57)).ok());
}

TEST(Objective, PrefixesAreContinued) {
  ObjectiveConfig config;
  config.name = "prefix_lm";
  config.prefix_split = "fixed";
  const Objective objective = Objective::create(config, 64, 0, ids_with(0)).value();
  const Denoiser& denoiser = objective.denoisers()[0];
  EXPECT_EQ(objective.source_length(), 64);
  for (const std::int64_t count : {std::int64_t{2}, std::int64_t{3}, denoiser.tokens}) {
    std::vector<std::int32_t> source(static_cast<std::size_t>(denoiser.source_length(count)));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(denoiser.target_length(count)));
    PhiloxSequence random(1, 1);
    const auto tokens = numbered(count);
    objective.apply(denoiser, tokens, 0, random, source, labels);
    EXPECT_EQ(source.back(), kIds.eos);
    EXPECT_EQ(labels.back(), kIds.eos);
    source.pop_back();
    labels.pop_back();
    source.insert(source.end(), labels.begin(), labels.end());
    EXPECT_EQ(source, tokens);
    if (count > 3) {
      EXPECT_EQ(labels.size(),
                static_cast<std::size_t>(std::nearbyint(static_cast<double>(count) * 0.25)));
    }
  }
}

// T5 draws the number of prefix tokens uniformly from 1 to length - 1.
TEST(Objective, PrefixesAreSplitAnywhere) {
  ObjectiveConfig config;
  config.name = "prefix_lm";
  const Objective objective = Objective::create(config, 16, 0, ids_with(0)).value();
  const Denoiser& denoiser = objective.denoisers()[0];
  EXPECT_FALSE(objective.fixed_lengths());
  ASSERT_EQ(denoiser.tokens, 16);
  EXPECT_EQ(objective.source_length(), 16);
  EXPECT_EQ(objective.target_length(), 16);
  PhiloxSequence random(1, 1);
  const auto tokens = numbered(denoiser.tokens);
  std::vector<double> observed(15, 0);
  constexpr int kDraws = 30000;
  for (int i = 0; i < kDraws; ++i) {
    const std::uint32_t draw = random.next();
    std::vector<std::int32_t> source(
        static_cast<std::size_t>(denoiser.source_length(denoiser.tokens, draw)));
    std::vector<std::int32_t> labels(
        static_cast<std::size_t>(denoiser.target_length(denoiser.tokens, draw)));
    objective.apply(denoiser, tokens, draw, random, source, labels);
    source.pop_back();
    labels.pop_back();
    ++observed.at(source.size() - 1);
    source.insert(source.end(), labels.begin(), labels.end());
    ASSERT_EQ(source, tokens);
    // Fewer tokens, no longer.
    ASSERT_LE(denoiser.source_length(9, draw), denoiser.source_length(10, draw));
    ASSERT_LE(denoiser.target_length(9, draw), denoiser.target_length(10, draw));
  }
  EXPECT_LT(chi_square(observed, std::vector<double>(15, kDraws / 15.0)), chi_square_limit(15));
  // A short target limits the text.
  EXPECT_EQ(Objective::create(config, 64, 20, ids_with(0)).value().tokens(), 20);
}

TEST(Objective, MixesAsUl2Does) {
  ObjectiveConfig config;
  config.name = "ul2";
  ObjectiveIds ids = ids_with(100);
  ids.modes[0] = 5;
  ids.modes[1] = 6;
  ids.modes[2] = 7;
  const Objective objective = Objective::create(config, 256, 256, ids).value();
  ASSERT_EQ(objective.denoisers().size(), 7u);
  EXPECT_LE(objective.source_length(), 256);
  EXPECT_LE(objective.target_length(), 256);
  PhiloxSequence random(2, 2);
  std::map<std::string, double> seen;
  const DenoiserTable table(objective, 1);
  for (std::size_t i = 0; i < table.rows(); ++i) {
    ++seen[objective.denoisers()[table.denoiser(i)].name];
  }
  ASSERT_EQ(seen.size(), 7u);
  for (const auto& [name, count] : seen) {
    EXPECT_NEAR(count, static_cast<double>(table.rows()) / 7, 1);
  }
  for (const Denoiser& denoiser : objective.denoisers()) {
    const auto tokens = numbered(denoiser.tokens);
    std::vector<std::int32_t> source(
        static_cast<std::size_t>(denoiser.source_length(denoiser.tokens)));
    std::vector<std::int32_t> labels(
        static_cast<std::size_t>(denoiser.target_length(denoiser.tokens)));
    objective.apply(denoiser, tokens, 0, random, source, labels);
    EXPECT_EQ(source.front(), denoiser.name[0] == 'R' ? 5 : denoiser.name[0] == 'S' ? 6 : 7);
    source.erase(source.begin());
    if (denoiser.kind == Denoiser::Kind::kSpans) {
      EXPECT_EQ(restore({source, labels}), tokens) << denoiser.name;
    }
    // As much text as fits: one token more would not.
    EXPECT_TRUE(denoiser.source_length(denoiser.tokens + 1) > 256 ||
                denoiser.target_length(denoiser.tokens + 1) > 256);
  }
  config.ul2_regular = config.ul2_extreme = 0;
  EXPECT_EQ(Objective::create(config, 256, 256, ids).value().denoisers().size(), 1u);
  config.ul2_sequential = 0;
  EXPECT_FALSE(Objective::create(config, 256, 256, ids).ok());
  config = {};
  config.name = "ul2";
  EXPECT_FALSE(Objective::create(config, 512, 512, ids).ok());  // X 3/0.5 needs 170 sentinels
}

}  // namespace
}  // namespace quintet
