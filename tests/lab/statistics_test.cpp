// The statistics against numbers from elsewhere (scipy 1.x and statsmodels 0.15 on the same
// tables), against closed forms, and against tables whose effects are known.
#include <gtest/gtest.h>

#include "base/files.h"
#include "lab/statistics/analysis.h"
#include "lab/statistics/csv_table.h"
#include "lab/statistics/distributions.h"
#include "tests/lab/made_up.h"

namespace quintet {
namespace {

using testing::factor;
using testing::made_up;
using testing::NormalNumbers;

Table fixture(const std::string& name) {
  const std::string path = QUINTET_SOURCE_DIR "/tests/lab/fixtures/" + name;
  const auto csv = parse_csv(read_file(path).value(), path).value();
  ColumnChoice columns;
  columns.response = "seconds";
  columns.factors = {"zero", "tp", "bandwidth"};
  columns.numeric = {"bandwidth"};
  columns.block = "block";
  return table_from_csv(csv, columns, {}, path).value().table;
}

const Share& share_of(const Effects& effects, const std::string& name) {
  for (const Share& share : effects.shares) {
    if (share.name == name) return share;
  }
  throw std::runtime_error("no share " + name);
}

const Estimate& main_effect(const Table& table, const Effects& effects, const std::string& name,
                            const std::string& level) {
  for (const MainEffect& effect : effects.main) {
    const Factor& of = table.factors[effect.factor];
    if (of.name == name && of.levels[effect.level] == level) return effect.estimate;
  }
  throw std::runtime_error("no effect of " + name);
}

const Estimate& interaction(const Table& table, const Effects& effects, const std::string& one,
                            const std::string& level, const std::string& other,
                            const std::string& other_level) {
  for (const Interaction& effect : effects.interactions) {
    const Factor &a = table.factors[effect.factor], &b = table.factors[effect.other];
    if (a.name == one && a.levels[effect.level] == level && b.name == other &&
        b.levels[effect.other_level] == other_level) {
      return effect.estimate;
    }
  }
  throw std::runtime_error("no interaction of " + one);
}

TEST(Distributions, AgreeWithScipy) {
  EXPECT_NEAR(incomplete_beta(0.5, 0.5, 0.3), 0.36901012, 1e-8);
  EXPECT_NEAR(incomplete_beta(2, 3, 0.7), 0.9163, 1e-10);
  EXPECT_NEAR(incomplete_beta(30, 40, 0.4), 0.3181438, 1e-7);
  EXPECT_NEAR(incomplete_beta(0.1, 5, 0.01), 0.76908892, 1e-8);
  EXPECT_NEAR(student_limit(0.95, 1), 12.70620474, 1e-7);
  EXPECT_NEAR(student_limit(0.95, 2), 4.30265273, 1e-8);
  EXPECT_NEAR(student_limit(0.95, 10), 2.22813885, 1e-8);
  EXPECT_NEAR(student_limit(0.95, 34.5), 2.0311602, 1e-7);
  EXPECT_NEAR(student_limit(0.95, 1000), 1.96233908, 1e-8);
  EXPECT_NEAR(student_two_sided(0.5, 3), 0.65144796, 1e-8);
  EXPECT_NEAR(student_two_sided(-2, 10), 0.07338803, 1e-8);
  EXPECT_NEAR(student_two_sided(7, 2), 0.01980394, 1e-8);
  EXPECT_NEAR(fisher_tail(1, 1, 10), 0.340893132, 1e-9);
  EXPECT_NEAR(fisher_tail(3.5, 3, 20), 0.0344931039, 1e-10);
  EXPECT_NEAR(fisher_tail(0.2, 7, 5), 0.971253823, 1e-9);
  EXPECT_NEAR(fisher_tail(50, 2, 40), 1.31413237e-11, 1e-18);
}

TEST(Distributions, HolmAndRankCorrelationsAgreeWithScipy) {
  const auto corrected = holm(std::vector<double>{0.01, 0.04, 0.03, 0.005, 0.5, kUnknown});
  const std::vector<double> expected = {0.04, 0.09, 0.09, 0.025, 0.5};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(corrected[i], expected[i], 1e-12);
  EXPECT_TRUE(std::isnan(corrected[5]));
  const std::vector<double> x = {1, 2, 3, 4, 5, 6, 7, 7}, y = {2, 1, 4, 3, 7, 7, 5, 8};
  EXPECT_NEAR(spearman_correlation(x, y), 0.8433734939759037, 1e-12);
  EXPECT_NEAR(kendall_correlation(x, y), 0.6666666666666666, 1e-12);
  const std::vector<double> constant(8, 3.0);
  EXPECT_TRUE(std::isnan(spearman_correlation(x, constant)));
  EXPECT_TRUE(std::isnan(kendall_correlation(x, constant)));
}

TEST(LinearModel, BalancedTableAgreesWithStatsmodels) {
  const Table table = fixture("balanced.csv");
  const LinearModel model = fit_model(table);
  EXPECT_NEAR(model.total_squares(), 14.632940722930167, 1e-9);
  EXPECT_NEAR(model.residual_squares(), 0.03203157928906261, 1e-11);
  EXPECT_EQ(model.residual_freedom(), 38);
  EXPECT_NEAR(model.repeats().variance * 34, 0.02941185158801606, 1e-11);
  EXPECT_EQ(model.repeats().freedom, 34);
  const Effects effects = effects_of(table, model);
  const double total = model.total_squares();
  const auto squares = [&](const std::string& name) {
    return share_of(effects, name).share * total;
  };
  EXPECT_NEAR(squares("blocks"), 0.031880450188906756, 1e-10);
  EXPECT_NEAR(squares("zero"), 0.14421909418791962, 1e-10);
  EXPECT_NEAR(squares("tp"), 1.3030703962965056, 1e-10);
  EXPECT_NEAR(squares("bandwidth"), 12.905022514069268, 1e-9);
  EXPECT_NEAR(squares("zero x tp"), 0.004008584998643422, 1e-10);
  EXPECT_NEAR(squares("zero x bandwidth"), 0.20927260416260807, 1e-10);
  EXPECT_NEAR(squares("tp x bandwidth"), 0.0034354997372564363, 1e-10);
  double sum = 0;
  for (const Share& share : effects.shares) sum += share.share;
  EXPECT_NEAR(sum, 1, 1e-10);  // balanced: the shares are all there is

  const auto expect = [&](const Estimate& estimate, double log_effect, double error) {
    EXPECT_NEAR(std::log(estimate.factor), log_effect, 1e-10);
    EXPECT_NEAR(estimate.p, student_two_sided(log_effect / error, 34), 1e-9);
    // Never narrower than Student's interval, and the bootstrap's does not differ much from it.
    const double half = std::log(estimate.high / estimate.factor);
    EXPECT_GE(half, student_limit(0.95, 34) * error - 1e-9);
    EXPECT_LE(half, student_limit(0.95, 34) * error * 1.25);
  };
  expect(main_effect(table, effects, "zero", "2"), 0.030936255909555788, 0.009803936048972374);
  expect(main_effect(table, effects, "zero", "3"), 0.12177179158739762, 0.009803936048972381);
  expect(main_effect(table, effects, "tp", "2"), -0.31068268870183346, 0.00800488026362002);
  expect(main_effect(table, effects, "bandwidth", "16"), -1.1974328586916436, 0.00980393604897238);
  expect(interaction(table, effects, "zero", "2", "bandwidth", "4"), -0.03752780546304512,
         0.02401464079086007);
  expect(interaction(table, effects, "zero", "3", "bandwidth", "16"), -0.3120755380294009,
         0.02401464079086007);
  expect(interaction(table, effects, "zero", "3", "tp", "2"), 0.04215386316591779,
         0.01960787209794474);
  EXPECT_TRUE(effects.not_estimated.empty());
}

// Holes in the design (settings that cannot be) and repeats that are missing.
TEST(LinearModel, UnbalancedTableAgreesWithStatsmodels) {
  const Table table = fixture("unbalanced.csv");
  const LinearModel model = fit_model(table);
  EXPECT_EQ(model.rank(), 24);
  EXPECT_NEAR(model.residual_squares(), 0.045091657841824596, 1e-10);
  EXPECT_EQ(model.repeats().freedom, 50);
  EXPECT_NEAR(model.repeats().variance * 50, 0.040174543351412094, 1e-10);
  const Effects effects = effects_of(table, model);
  const double total = 14.392739683194563;
  const auto expect_share = [&](const std::string& name, double squares, double freedom) {
    EXPECT_NEAR(share_of(effects, name).share * total, squares, 1e-9) << name;
    EXPECT_EQ(share_of(effects, name).freedom, freedom) << name;
  };
  expect_share("blocks", 0.03639069528384653, 2);
  expect_share("zero", 0.36291190626846703, 3);
  expect_share("tp", 0.4579844158723429, 1);
  expect_share("bandwidth", 12.726539060423118, 3);
  expect_share("zero x tp", 0.030750380238978796, 2);
  expect_share("zero x bandwidth", 0.11052569324752273, 9);
  expect_share("tp x bandwidth", 0.0014781505365402542, 3);
  EXPECT_NEAR(std::log(main_effect(table, effects, "zero", "2").factor), 0.14380770815729527, 1e-9);
  // Over tp 1 alone, the only place where both ran.
  EXPECT_NEAR(std::log(main_effect(table, effects, "zero", "1").factor), 0.047633884754158515,
              1e-9);
  const Estimate& pair = interaction(table, effects, "zero", "3", "bandwidth", "8");
  EXPECT_NEAR(std::log(pair.factor), -0.25255758882230717, 1e-9);
  const double error = std::sqrt(0.040174543351412094 / 50 * 1.001862197392921);
  EXPECT_NEAR(pair.p, student_two_sided(-0.25255758882230717 / error, 50), 1e-9);
  EXPECT_NEAR(std::log(interaction(table, effects, "zero", "3", "tp", "2").factor),
              -0.011251756705442685, 1e-9);
  // zero 1 never ran with tp 2: that is said, and nothing is made up for it.
  ASSERT_EQ(effects.not_estimated.size(), 1u);
  EXPECT_NE(effects.not_estimated[0].find("zero 1 together with tp 2"), std::string::npos);
}

// Two levels, two repeats: everything can be worked out by hand.
TEST(LinearModel, TheSmallestTableHasItsClosedForm) {
  Table table;
  table.response = "seconds";
  table.factors = {factor("zero", {"0", "3"})};
  const double values[] = {1.0, 1.2, 2.0, 2.2};
  for (std::size_t i = 0; i < 4; ++i) {
    Observation row;
    row.level = {i / 2};
    row.response = values[i];
    table.rows.push_back(row);
  }
  const LinearModel model = fit_model(table);
  const double low = (std::log(1.0) + std::log(1.2)) / 2,
               high = (std::log(2.0) + std::log(2.2)) / 2;
  const double variance =
      (std::pow(std::log(1.2) / 2, 2) * 2 + std::pow(std::log(1.1) / 2, 2) * 2) / 2;
  EXPECT_NEAR(model.noise().variance, variance, 1e-12);
  const Effects effects = effects_of(table, model);
  ASSERT_EQ(effects.main.size(), 1u);
  const Estimate& estimate = effects.main[0].estimate;
  EXPECT_NEAR(std::log(estimate.factor), high - low, 1e-12);
  EXPECT_NEAR(estimate.p, student_two_sided((high - low) / std::sqrt(variance), 2), 1e-12);
  EXPECT_LE(std::log(estimate.low), high - low - 4.302 * std::sqrt(variance));
  EXPECT_NEAR(effects.noise.spread, std::exp(std::sqrt(variance)), 1e-12);
}

// The intervals cover the truth as often as they say: main effects, interactions and crossovers,
// with few repeats in few blocks, and with noise that is not normal.
TEST(Coverage, IntervalsCoverTheTruth) {
  const std::vector<Factor> factors = {factor("zero", {"0", "2", "3"}), factor("tp", {"1", "2"}),
                                       factor("bandwidth", {"1", "2", "4", "8"}, true)};
  // zero 3 against zero 2, on average over tp: 0.35 - 0.3009 ln(x), which is zero at x = 3.2.
  const double slope = 0.35 / std::log(3.2);
  const auto truth = [&](const std::vector<std::size_t>& level) {
    const double x = std::log(factors[2].values[level[2]]);
    return 0.1 * (level[0] == 1) - 0.4 * x - 0.2 * (level[1] == 1) +
           (level[0] == 2) * (0.135 + 0.35 - slope * x) + 0.07 * (level[0] == 1 && level[1] == 1);
  };
  const double mean_x = 1.5 * std::log(2.0);
  for (const bool heavy_tails : {false, true}) {
    for (const std::size_t blocks : {2, 3}) {
      int main_covered = 0, pair_covered = 0, crossing_covered = 0, found = 0;
      int all_covered = 0, all = 0;
      for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        NormalNumbers normal(seed);
        const auto noise = [&] {
          const double value = normal.next();
          return 0.04 * (heavy_tails ? 0.3 * value * value * value : value);
        };
        const Table table = made_up(factors, blocks, truth, noise);
        const LinearModel model = fit_model(table);
        const Effects effects = effects_of(table, model);
        const auto covers = [&](const Estimate& estimate, double log_truth) {
          const bool inside =
              std::log(estimate.low) <= log_truth && log_truth <= std::log(estimate.high);
          ++all;
          all_covered += inside;
          return inside;
        };
        main_covered += covers(main_effect(table, effects, "zero", "2"), 0.1 + 0.035);
        covers(main_effect(table, effects, "zero", "3"), 0.485 - slope * mean_x);
        covers(main_effect(table, effects, "tp", "2"), -0.2 + 0.07 / 3);
        pair_covered += covers(interaction(table, effects, "zero", "2", "tp", "2"), 0.07);
        covers(interaction(table, effects, "zero", "3", "bandwidth", "8"), -slope * std::log(8.0));
        covers(interaction(table, effects, "tp", "2", "bandwidth", "4"), 0);
        for (const Crossover& crossover : crossovers_of(table, model)) {
          if (crossover.factor != 0 || crossover.first != 1 || crossover.second != 2) continue;
          // Noise may turn one crossing into three, of which none is certain then.
          bool covered = false;
          for (const Crossing& crossing : crossover.crossings) {
            EXPECT_TRUE(crossing.first_wins_below || !crossing.certain()) << seed;
            covered = covered || (crossing.low <= 3.2 && 3.2 <= crossing.high);
          }
          found += !crossover.crossings.empty();
          crossing_covered += covered;
        }
      }
      const std::string figures = fmt::format(
          "{} blocks, heavy tails {}: main {}, interaction {}, crossover {} of 100; all {} of {}",
          blocks, heavy_tails, main_covered, pair_covered, crossing_covered, all_covered, all);
      SCOPED_TRACE(figures);
      fmt::print("{}\n", figures);
      EXPECT_GE(main_covered, 93);
      EXPECT_GE(pair_covered, 93);
      EXPECT_EQ(found, 100);
      EXPECT_GE(crossing_covered, 93);
      EXPECT_GE(all_covered, 0.94 * all);
      EXPECT_LE(all_covered, 0.985 * all);  // nor are they wider than they say
    }
  }
}

TEST(Crossovers, ACurveBetweenLevelsIsFollowed) {
  // Times 1 + x/2 and 2.6 are equal at x = 3.2; their logarithms' difference is no line in log x.
  const std::vector<Factor> factors = {factor("method", {"a", "b"}),
                                       factor("nodes", {"1", "2", "4", "8"}, true)};
  const Table table = made_up(
      factors, 2,
      [&](const std::vector<std::size_t>& level) {
        return std::log(level[0] == 0 ? 1 + factors[1].values[level[1]] / 2 : 2.6);
      },
      [normal = NormalNumbers(5)]() mutable { return 0.002 * normal.next(); });
  const auto crossovers = crossovers_of(table, fit_model(table));
  ASSERT_EQ(crossovers.size(), 1u);
  ASSERT_EQ(crossovers[0].crossings.size(), 1u);
  const Crossing& crossing = crossovers[0].crossings[0];
  EXPECT_NEAR(crossing.at, 3.2, 0.05);
  EXPECT_LE(crossing.low, 3.2);
  EXPECT_GE(crossing.high, 3.2);
  EXPECT_LT(crossing.high - crossing.low, 0.3);
  EXPECT_TRUE(crossing.first_wins_below);
  EXPECT_TRUE(crossing.certain());
}

TEST(Crossovers, NoneInTheRangeIsAnAnswer) {
  const std::vector<Factor> factors = {factor("method", {"a", "b"}),
                                       factor("nodes", {"1", "2", "3"}, true)};
  EXPECT_FALSE(factors[1].logarithmic);
  const Table table = made_up(
      factors, 3,
      [](const std::vector<std::size_t>& level) {
        return 0.4 * (level[0] == 1) + 0.1 * static_cast<double>(level[1]);
      },
      [normal = NormalNumbers(6)]() mutable { return 0.01 * normal.next(); });
  const auto crossovers = crossovers_of(table, fit_model(table));
  ASSERT_EQ(crossovers.size(), 1u);
  EXPECT_TRUE(crossovers[0].crossings.empty());
  EXPECT_TRUE(crossovers[0].first_wins());
  EXPECT_TRUE(crossovers[0].clear_throughout());
  EXPECT_NE(describe(table, crossovers[0]).find("none in the range; method a is smaller"),
            std::string::npos);
}

TEST(Crossovers, ExactDataHaveNoWidthAndAZeroAtALevelIsSeen) {
  const std::vector<Factor> factors = {factor("method", {"a", "b"}),
                                       factor("nodes", {"1", "2", "4"}, true)};
  const Table table = made_up(
      factors, 2,
      [](const std::vector<std::size_t>& level) {
        return level[0] == 0 ? 1.0 : 0.5 + 0.5 * static_cast<double>(level[1]);
      },
      [] { return 0.0; });
  const auto crossovers = crossovers_of(table, fit_model(table));
  ASSERT_EQ(crossovers.size(), 1u);
  ASSERT_EQ(crossovers[0].crossings.size(), 1u);
  EXPECT_NEAR(crossovers[0].crossings[0].at, 2, 1e-6);
  EXPECT_FALSE(crossovers[0].crossings[0].first_wins_below);
}

TEST(Crossovers, RoundingIsNoDifferenceAndTiesAreOneCrossing) {
  const std::vector<Factor> factors = {factor("method", {"a", "b"}),
                                       factor("nodes", {"1", "2", "4", "8"}, true)};
  const auto crossover_of = [&](const std::vector<double>& ratios) {  // of b over a
    const Table table = made_up(
        factors, 2,
        [&](const std::vector<std::size_t>& level) {
          return 0.3 * static_cast<double>(level[1]) +
                 (level[0] == 1 ? std::log(ratios[level[1]]) : 0);
        },
        [] { return 0.0; });
    auto found = crossovers_of(table, fit_model(table));
    EXPECT_EQ(found.size(), 1u);
    return std::pair(found[0], describe(table, found[0]));
  };
  const auto [none, text] = crossover_of({1 + 1e-15, 1 - 1e-15, 1, 1 + 4e-16});
  EXPECT_TRUE(none.crossings.empty());
  EXPECT_TRUE(none.the_same());
  EXPECT_NE(text.find("no difference anywhere"), std::string::npos) << text;

  const Crossover one = crossover_of({2, 1, 1, 0.5}).first;
  ASSERT_EQ(one.crossings.size(), 1u);
  EXPECT_GE(one.crossings[0].at, 2);
  EXPECT_LE(one.crossings[0].at, 4);
  EXPECT_NEAR(one.crossings[0].low, 2, 1e-6);
  EXPECT_NEAR(one.crossings[0].high, 4, 1e-6);
  EXPECT_TRUE(one.crossings[0].first_wins_below);

  const auto [touching, words] = crossover_of({1, 1.5, 1, 2});
  EXPECT_TRUE(touching.crossings.empty());
  EXPECT_TRUE(touching.first_wins()) << words;
  EXPECT_TRUE(crossover_of({1, 1, 0.5, 0.5}).first.crossings.empty());
}

// Three factors act together, the table has holes, and repeats hardly vary: what is missed gets
// into the effect of a factor that does nothing.
TEST(Effects, WhatPairsMissIsNotTakenForAnEffectInATableWithHoles) {
  const std::vector<Factor> factors = {factor("z", {"0", "1", "2"}), factor("n", {"1", "2", "4"}),
                                       factor("p", {"1", "2"}), factor("b", {"1", "2", "3"})};
  int beyond_chance = 0, tables = 0, complete = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    NormalNumbers normal(seed);
    std::vector<double> together(18);
    for (double& value : together) value = 0.1 * normal.next();
    Table table = made_up(
        factors, 2,
        [&](const std::vector<std::size_t>& level) {
          return 0.5 * static_cast<double>(level[0]) + 0.3 * static_cast<double>(level[1]) +
                 together[level[0] * 6 + level[1] * 2 + level[2]];
        },
        [&] { return 0.005 * normal.next(); });
    const LinearModel whole = fit_model(table);
    complete += whole.missed().freedom == 0;  // there it gets into nothing
    std::vector<bool> kept(54);
    for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = normal.next() < 0.43;  // two thirds
    std::erase_if(table.rows, [&](const Observation& row) {
      return !kept[((row.level[0] * 3 + row.level[1]) * 2 + row.level[2]) * 3 + row.level[3]];
    });
    const LinearModel model = fit_model(table);
    const Effects effects = effects_of(table, model);
    if (model.missed().freedom <= 0) continue;
    ++tables;
    beyond_chance += std::any_of(
        effects.main.begin(), effects.main.end(),
        [](const MainEffect& effect) { return effect.factor == 3 && effect.estimate.survives(); });
  }
  EXPECT_EQ(complete, 40);
  EXPECT_GE(tables, 35);
  EXPECT_LE(beyond_chance, 4);
}

// The same levels with something else set are not the same run repeated.
TEST(Effects, RowsThatDifferInOtherFactorsAreNoRepetitions) {
  const std::vector<Factor> factors = {factor("zero", {"0", "3"}), factor("tp", {"1", "2", "4"})};
  Table table = made_up(
      factors, 3,
      [](const std::vector<std::size_t>& level) {
        return 0.1 * static_cast<double>(level[0]) + static_cast<double>(level[1]);
      },
      [normal = NormalNumbers(8)]() mutable { return 0.01 * normal.next(); });
  table.factors.pop_back();
  for (Observation& row : table.rows) {
    row.setting = row.level[1];
    row.level.pop_back();
  }
  const Effects effects = effects_of(table, fit_model(table));
  EXPECT_NEAR(effects.noise.spread, 1.01, 0.005);
  EXPECT_GT(effects.noise.missed.variance, 0.1);
  EXPECT_FALSE(effects.main.at(0).estimate.survives());
}

TEST(Effects, WithoutRepeatsAndWithoutRoomThereAreNoIntervals) {
  const std::vector<Factor> factors = {factor("a", {"0", "1"}), factor("b", {"0", "1"})};
  const auto log_response = [](const std::vector<std::size_t>& level) {
    return 0.3 * static_cast<double>(level[0]) + 0.1 * static_cast<double>(level[0] * level[1]);
  };
  const Table once = made_up(factors, 1, log_response, [] { return 0.0; });
  const Effects effects = effects_of(once, fit_model(once));
  EXPECT_FALSE(effects.pairs);
  ASSERT_EQ(effects.not_estimated.size(), 1u);
  EXPECT_EQ(effects.main.size(), 2u);
  EXPECT_TRUE(effects.main[0].estimate.has_interval());  // from what the additive model leaves over

  Table single = once;
  single.factors.pop_back();
  single.rows.resize(2);
  for (Observation& row : single.rows) row.level.pop_back();
  const Effects bare = effects_of(single, fit_model(single));
  EXPECT_NEAR(bare.main.at(0).estimate.factor, std::exp(0.3), 1e-9);
  EXPECT_FALSE(bare.main.at(0).estimate.has_interval());
}

}  // namespace
}  // namespace quintet
