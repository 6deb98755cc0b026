// Where trials are put: Sobol's sequence against known points, ranges, and the Parzen estimator and
// the Gaussian process on functions whose best is known.
#include "lab/search/sampler.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "lab/search/gaussian_process.h"
#include "lab/search/gp.h"
#include "lab/search/normal.h"
#include "lab/search/sobol.h"
#include "lab/search/tpe.h"

namespace quintet {
namespace {

using Kind = SearchParameter::Kind;

SearchParameter real_parameter(const std::string& key, double low, double high, bool log = false) {
  return {key, Kind::kReal, log, low, high};
}
SearchParameter integer_parameter(const std::string& key, double low, double high,
                                  bool log = false) {
  return {key, Kind::kInteger, log, low, high};
}
SearchParameter choice_parameter(const std::string& key, std::vector<TomlScalar> choices) {
  return {key, Kind::kChoice, false, 0, 0, std::move(choices)};
}

TEST(Sobol, FirstPointsAreJoeAndKuos) {
  // scipy 1.17, qmc.Sobol(6, scramble=False)
  const double expected[8][6] = {{0, 0, 0, 0, 0, 0},
                                 {0.5, 0.5, 0.5, 0.5, 0.5, 0.5},
                                 {0.75, 0.25, 0.25, 0.25, 0.75, 0.75},
                                 {0.25, 0.75, 0.75, 0.75, 0.25, 0.25},
                                 {0.375, 0.375, 0.625, 0.875, 0.375, 0.125},
                                 {0.875, 0.875, 0.125, 0.375, 0.875, 0.625},
                                 {0.625, 0.125, 0.875, 0.625, 0.625, 0.875},
                                 {0.125, 0.625, 0.375, 0.125, 0.125, 0.375}};
  for (std::uint32_t i = 0; i < 8; ++i) {
    for (std::size_t d = 0; d < 6; ++d) EXPECT_EQ(sobol(i, d) * 0x1p-32, expected[i][d]) << i << d;
  }
}

TEST(Sobol, AllDimensionsHaveKnownPoints) {
  // The same source, points 21 and 31 in 32 dimensions, in units of 1/64 and 1/1024.
  const std::uint32_t at_21[] = {62, 38, 22, 50, 42, 22, 26, 46, 6,  2,  30, 34, 18, 34, 46, 26,
                                 10, 62, 42, 42, 6,  18, 30, 62, 58, 18, 50, 62, 38, 62, 34, 62};
  const std::uint32_t at_31[] = {32,  544, 928, 992, 992, 800, 352, 544, 160, 608, 32,
                                 352, 992, 224, 672, 864, 224, 416, 608, 736, 416, 224,
                                 32,  288, 864, 608, 96,  32,  416, 800, 736, 416};
  for (std::size_t d = 0; d < kSobolDimensions; ++d) {
    EXPECT_EQ(sobol(21, d) >> 26, at_21[d]) << d;
    EXPECT_EQ(sobol(31, d) >> 22, at_31[d]) << d;
  }
}

TEST(Sobol, EveryDyadicIntervalHasItsPoint) {
  constexpr std::uint32_t kPoints = 256;
  for (const std::uint64_t seed : {1u, 2u}) {
    std::vector<std::set<int>> cells(kSobolDimensions);
    for (std::uint32_t i = 0; i < kPoints; ++i) {
      const auto point = shifted_sobol(seed, i, kSobolDimensions);
      for (std::size_t d = 0; d < kSobolDimensions; ++d)
        cells[d].insert(static_cast<int>(point[d] * kPoints));
    }
    for (const auto& found : cells) EXPECT_EQ(found.size(), kPoints);
  }
  EXPECT_NE(shifted_sobol(1, 5, 4), shifted_sobol(2, 5, 4));
}

TEST(Ranges, ValuesAndCellsAreEachOthersInverse) {
  for (const SearchParameter& parameter :
       {integer_parameter("a", 1, 64, true), integer_parameter("a", -3, 9),
        choice_parameter("a", {std::int64_t{1}, std::int64_t{4}, std::int64_t{16}}),
        choice_parameter("a", {std::string("x"), std::string("y")})}) {
    double end = 0;
    for (std::int64_t level = 0; level < parameter.levels(); ++level) {
      const TomlScalar value = parameter.kind == Kind::kChoice
                                   ? parameter.choices[static_cast<std::size_t>(level)]
                                   : TomlScalar(static_cast<std::int64_t>(parameter.low) + level);
      const UnitCell cell = parameter.cell_of(value);
      EXPECT_NEAR(cell.low, end, 1e-12);
      EXPECT_GT(cell.high, cell.low);
      EXPECT_EQ(parameter.value_at(cell.middle()), value);
      end = cell.high;
    }
    EXPECT_NEAR(end, 1, 1e-12);
  }
  // A logarithmic integer has as much room from 1 to 2 as from 32 to 64, about.
  const SearchParameter octaves = integer_parameter("a", 1, 64, true);
  EXPECT_NEAR(octaves.cell_of(std::int64_t{1}).high - octaves.cell_of(std::int64_t{1}).low,
              std::log(3.0) / std::log(129.0), 1e-12);
  const SearchParameter rate = real_parameter("a", 1e-5, 1e-1, true);
  EXPECT_EQ(rate.value_at(0.5), TomlScalar(1e-3));
  EXPECT_EQ(rate.value_at(0), TomlScalar(1e-5));
  EXPECT_NEAR(rate.cell_of(1e-2).low, 0.75, 1e-9);
  EXPECT_EQ(real_parameter("a", 0, 0.3).value_at(0.5), TomlScalar(0.15));
  EXPECT_TRUE(choice_parameter("a", {1.0, 2.0}).ordered());
  EXPECT_FALSE(choice_parameter("a", {2.0, 1.0}).ordered());
  EXPECT_FALSE(choice_parameter("a", {std::string("b"), std::string("a")}).ordered());
}

// A space with every kind of range, and one that counts only with one choice.
SearchSpace mixed_space() {
  std::vector<SearchParameter> all = {
      choice_parameter("optimizer.name", {std::string("adamw"), std::string("adafactor")}),
      real_parameter("schedule.peak", 1e-5, 1, true),
      integer_parameter("schedule.warmup_steps", 1, 1000, true),
      real_parameter("optimizer.beta2", 0.9, 0.999)};
  const Settings known = {{"optimizer.name", std::string("adamw")}};
  all[3].when = RowCondition::parse("optimizer.name == 'adamw'", known, "here").value();
  return SearchSpace(all, {});
}

// Best, 0, with adamw, peak 3e-3, warm-up 100 and beta2 0.98.
double bowl(const Settings& settings) {
  const auto off = [&](const char* key, double best, double per) {
    return std::log(search_number(settings.at(key)) / best) / per;
  };
  double loss = std::pow(off("schedule.peak", 3e-3, 3), 2) +
                0.3 * std::pow(off("schedule.warmup_steps", 100, 2), 2);
  if (settings.count("optimizer.beta2") == 0) return loss + 0.5;
  return loss + std::pow((search_number(settings.at("optimizer.beta2")) - 0.98) / 0.05, 2);
}

double best_found(const SearchSpace& space, const std::string& kind, std::uint64_t seed,
                  std::int64_t trials) {
  std::vector<TriedSettings> past;
  double best = 1e9;
  for (std::int64_t t = 0; t < trials; ++t) {
    const auto settings = propose(space, {kind, seed, 10}, t, past);
    EXPECT_TRUE(settings.has_value());
    past.push_back({*settings, 0, bowl(*settings)});
    best = std::min(best, past.back().loss);
  }
  return best;
}

TEST(Samplers, StayInTheirRangesAndKeepConditions) {
  const SearchSpace space = mixed_space();
  for (const char* kind : {"random", "sobol", "tpe", "gp"}) {
    std::vector<TriedSettings> past;
    std::set<std::string> names;
    for (std::int64_t t = 0; t < 60; ++t) {
      const auto settings = propose(space, {kind, 7, 10}, t, past);
      ASSERT_TRUE(settings.has_value());
      EXPECT_EQ(settings, propose(space, {kind, 7, 10}, t, past)) << "not a pure function";
      const double peak = search_number(settings->at("schedule.peak"));
      EXPECT_TRUE(peak >= 1e-5 && peak <= 1);
      const auto warmup = std::get<std::int64_t>(settings->at("schedule.warmup_steps"));
      EXPECT_TRUE(warmup >= 1 && warmup <= 1000);
      const auto name = std::get<std::string>(settings->at("optimizer.name"));
      EXPECT_EQ(settings->count("optimizer.beta2"), name == "adamw" ? 1u : 0u);
      names.insert(name);
      past.push_back({*settings, 0, bowl(*settings)});
    }
    EXPECT_EQ(names.size(), 2u) << kind;
  }
}

TEST(Samplers, TryASmallSpaceOutAndEnd) {
  const SearchSpace space(
      {choice_parameter("a.x", {std::int64_t{1}, std::int64_t{2}}), integer_parameter("a.y", 1, 3)},
      {});
  EXPECT_EQ(space.combinations(), 6);
  for (const char* kind : {"random", "sobol", "tpe", "gp"}) {
    std::vector<TriedSettings> past;
    std::set<Settings> seen;
    for (std::int64_t t = 0; t < 6; ++t) {
      const auto settings = propose(space, {kind, 3, 2}, t, past);
      ASSERT_TRUE(settings.has_value()) << kind << t;
      EXPECT_TRUE(seen.insert(*settings).second) << "tried twice";
      past.push_back({*settings, 0, static_cast<double>(t)});
    }
    EXPECT_FALSE(propose(space, {kind, 3, 2}, 6, past).has_value());
  }
}

TEST(Parzen, OrdersWhatIsKnown) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<TriedSettings> past = {{{}, 0, 5.0}, {{}, -1, 0.0}, {{}, 1, 7.0},
                                           {{}, 0, inf}, {{}, 0, 4.0},  {{}, 1, 6.0}};
  // Who came further first; then by loss; then what failed; then what runs.
  EXPECT_EQ(order_of(past), (std::vector<std::size_t>{5, 2, 4, 0, 3, 1}));
  EXPECT_EQ(good_count(0), 0u);
  EXPECT_EQ(good_count(1), 1u);
  EXPECT_EQ(good_count(12), 3u);
  EXPECT_EQ(good_count(100000), 25u);
}

TEST(Parzen, CandidatesGatherWhereTrialsWereGood) {
  // Good trials at 0.2 of the range, bad ones everywhere else.
  const SearchSpace space({real_parameter("a.x", 0, 1)}, {});
  std::vector<TriedSettings> past;
  for (int i = 0; i < 40; ++i) {
    const double x = (i + 0.5) / 40;
    past.push_back({{{"a.x", x}}, 0, std::abs(x - 0.2)});
  }
  PhiloxSequence random(1, 1);
  const auto candidates = tpe_candidates(space, past, random);
  EXPECT_NEAR(search_number(candidates.front().at("a.x")), 0.2, 0.08);
  // The last of them is less promising than the first.
  EXPECT_GT(std::abs(search_number(candidates.back().at("a.x")) - 0.2),
            std::abs(search_number(candidates.front().at("a.x")) - 0.2));
}

TEST(Parzen, RunningTrialsAreAvoided) {
  // Without a liar the best place is proposed again and again; with it proposals spread.
  const SearchSpace space({real_parameter("a.x", 0, 1)}, {});
  std::vector<TriedSettings> past;
  for (int i = 0; i < 20; ++i) {
    const double x = (i + 0.5) / 20;
    past.push_back({{{"a.x", x}}, 0, std::abs(x - 0.5)});
  }
  std::vector<TriedSettings> lied = past;
  for (int i = 0; i < 12; ++i) lied.push_back({{{"a.x", 0.5 + 0.001 * i}}, -1, 0});
  double honest = 0, wary = 0;
  for (std::int64_t t = 20; t < 60; ++t) {
    honest += std::abs(search_number(propose(space, {"tpe", 1, 10}, t, past)->at("a.x")) - 0.5);
    wary += std::abs(search_number(propose(space, {"tpe", 1, 10}, t, lied)->at("a.x")) - 0.5);
  }
  EXPECT_GT(wary, 1.5 * honest);
}

TEST(Parzen, FindsABowlsBottomSoonerThanChance) {
  const SearchSpace space = mixed_space();
  double tpe = 0, random = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    tpe += best_found(space, "tpe", seed, 60) / 20;
    random += best_found(space, "random", seed, 60) / 20;
  }
  EXPECT_LT(tpe, 0.5 * random) << tpe << " against " << random;
}

// Values of sin(3 x) with noise of deviation 0.05 at 40 points of a square whose second side does
// nothing; none beyond 0.7.
NoisyValues noisy_sine() {
  NoisyValues sine{{true, true}, Eigen::MatrixXd(40, 2), Eigen::VectorXd(40), {}};
  PhiloxSequence random(5, 1);
  for (Eigen::Index i = 0; i < 40; ++i) {
    const auto at = shifted_sobol(3, static_cast<std::uint32_t>(i), 2);
    sine.points.row(i) << 0.7 * at[0], at[1];
    sine.values[i] = std::sin(3 * sine.points(i, 0)) + 0.05 * normal_quantile(random.uniform());
  }
  sine.levels = Eigen::VectorXd::Zero(40);
  return sine;
}

FunctionShape most_plausible(const NoisyValues& known) {
  PhiloxSequence random(1, 1);
  return plausible_shapes(known, 1, random)[0];
}

TEST(GaussianProcesses, SeeThroughNoiseAndWhatDoesNotMatter) {
  const NoisyValues sine = noisy_sine();
  const FunctionShape shape = most_plausible(sine);
  EXPECT_GT(shape.lengths[1], 2 * shape.lengths[0]);
  const GaussianProcess process(sine, shape);
  EXPECT_NEAR(process.noise_deviation(), 0.05, 0.025);
  for (const double x : {0.05, 0.2, 0.35, 0.5, 0.65}) {
    for (const double y : {0.1, 0.9}) {
      const Belief belief = process.at(Eigen::Vector2d(x, y));
      EXPECT_NEAR(belief.mean, std::sin(3 * x), 0.06) << x << " " << y;
      EXPECT_LT(belief.deviation, 0.06);
    }
  }
  // Far from all points it knows that it does not know.
  EXPECT_GT(process.at(Eigen::Vector2d(1, 0.5)).deviation,
            2 * process.at(Eigen::Vector2d(0.4, 0.5)).deviation);
}

TEST(GaussianProcesses, PendingPointsLeaveLessToLearnAndChangeNoMean) {
  const NoisyValues sine = noisy_sine();
  NoisyValues with_pending = sine;
  const Eigen::Vector2d there(1, 0.5);
  with_pending.points.conservativeResize(41, Eigen::NoChange);
  with_pending.points.row(40) = there;
  with_pending.levels = Eigen::VectorXd::Zero(41);
  const FunctionShape shape = most_plausible(sine);
  EXPECT_EQ(shape.lengths, most_plausible(with_pending).lengths);
  const GaussianProcess before(sine, shape), after(with_pending, shape);
  EXPECT_NEAR(after.at(there).mean, before.at(there).mean, 1e-9);
  EXPECT_LT(after.at(there).deviation, 0.7 * before.at(there).deviation);
}

// A function at 14 points, and at 26 others only something that correlates with it.
NoisyValues two_levels(bool alike) {
  NoisyValues known{{true}, Eigen::MatrixXd(40, 1), Eigen::VectorXd(40), Eigen::VectorXd::Zero(40)};
  for (Eigen::Index i = 0; i < 40; ++i) {
    const double x = shifted_sobol(3, static_cast<std::uint32_t>(i % 20), 1)[0];
    known.points(i, 0) = x;
    known.levels[i] = i < 14 ? 0 : 1;
    known.values[i] = std::sin(4 * x);
    if (i >= 14) known.values[i] = alike ? known.values[i] - 0.1 * x : std::cos(11 * x);
  }
  return known;
}

TEST(GaussianProcesses, FindOutHowMuchAnEarlierLevelTells) {
  const FunctionShape same = most_plausible(two_levels(true));
  const FunctionShape other = most_plausible(two_levels(false));
  EXPECT_LT(same.fade, 0.1) << "correlation " << std::exp(-same.fade);
  EXPECT_GT(other.fade, 0.7) << "correlation " << std::exp(-other.fade);
  // One level alone has nothing to fade.
  EXPECT_EQ(most_plausible(noisy_sine()).fade, 0);
}

TEST(GaussianProcesses, ExpectOfAnEarlierValueWhatOthersOfItsKindCameTo) {
  // On the right half what looks bad early ends well, on the left it does not. Of two points that
  // have an early value alone, and the same one, more is expected of the right one.
  NoisyValues known{{true}, Eigen::MatrixXd(18, 1), Eigen::VectorXd(18), Eigen::VectorXd::Zero(18)};
  for (Eigen::Index i = 0; i < 8; ++i) {
    const double x = (static_cast<double>(i) + 0.5) / 8;
    known.points(2 * i, 0) = known.points(2 * i + 1, 0) = x;
    known.levels[2 * i + 1] = 1;
    known.values[2 * i + 1] = 0.5;
    known.values[2 * i] = x < 0.5 ? 0.5 : -1;
  }
  known.points(16, 0) = 0.24;
  known.points(17, 0) = 0.76;
  known.levels[16] = known.levels[17] = 1;
  known.values[16] = known.values[17] = 0.5;
  const GaussianProcess process(known, most_plausible(known));
  EXPECT_NEAR(process.at(Eigen::VectorXd::Constant(1, 0.24)).mean, 0.5, 0.25);
  EXPECT_NEAR(process.at(Eigen::VectorXd::Constant(1, 0.76)).mean, -1, 0.25);
}

TEST(GaussianProcesses, ChoicesWithoutOrderHaveNoNeighbours) {
  // 0.2 lies between the others as a number, and is no more like one than like the other.
  NoisyValues known{{false}, Eigen::MatrixXd(6, 1), Eigen::VectorXd(6), Eigen::VectorXd::Zero(6)};
  known.points << 0.1, 0.1, 0.1, 0.3, 0.3, 0.3;
  known.values << 1, 1.1, 0.9, -1, -1.1, -0.9;
  const GaussianProcess process(known, most_plausible(known));
  EXPECT_NEAR(process.at(Eigen::VectorXd::Constant(1, 0.1)).mean, 1, 0.1);
  EXPECT_NEAR(process.at(Eigen::VectorXd::Constant(1, 0.2)).mean, 0, 0.05);
}

TEST(GaussianProcesses, ShapesSpreadWhereValuesLeaveThemOpen) {
  const auto spread_of_lengths = [](const NoisyValues& known) {
    PhiloxSequence random(1, 1);
    std::vector<double> logs;
    for (const FunctionShape& shape : plausible_shapes(known, 40, random)) {
      EXPECT_TRUE((shape.lengths.array() > 0).all() && shape.noise > 0);
      logs.push_back(std::log(shape.lengths[0]));
    }
    double mean = 0, square = 0;
    for (const double log : logs) mean += log / 40;
    for (const double log : logs) square += (log - mean) * (log - mean) / 40;
    return std::sqrt(square);
  };
  const NoisyValues sine = noisy_sine();
  const NoisyValues few{sine.ordered, sine.points.topRows(4), sine.values.head(4),
                        sine.levels.head(4)};
  EXPECT_GT(spread_of_lengths(few), 1.5 * spread_of_lengths(sine));
}

// Of one trial, from its last rung down.
std::vector<double> values_of(const ValuesByRung& known, std::size_t trial) {
  std::vector<double> values;
  std::int64_t below = -1;
  for (const ValuesByRung::Row& row : known.rows) {
    if (row.trial != trial) continue;
    EXPECT_GT(row.below, below);
    below = row.below;
    values.push_back(row.value);
  }
  return values;
}

TEST(Comparing, RungsAreInUnitsOfTheHighest) {
  const double inf = std::numeric_limits<double>::infinity();
  // Five have been to the end, where losses are half of what they were; one was stopped, one
  // failed, one runs.
  std::vector<TriedSettings> past;
  for (const double early : {2.0, 4.0, 6.0, 8.0, 10.0}) past.push_back({{}, 1, early / 2, {early}});
  past.push_back({{}, 0, 9.0});
  past.push_back({{}, 0, inf});
  past.push_back({{}, -1, 0});
  const ValuesByRung known = values_by_rung(past, 5);
  EXPECT_EQ(known.rung, 1);
  EXPECT_EQ(known.rows.size(), 5u * 2 + 2);
  for (std::size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(values_of(known, i).size(), 2u);
    EXPECT_NEAR(values_of(known, i)[0], 1.0 + static_cast<double>(i), 1e-12);
    EXPECT_NEAR(values_of(known, i)[1], 1.0 + static_cast<double>(i), 1e-12);
  }
  EXPECT_EQ(known.rows[10].trial, 5u);
  EXPECT_EQ(known.rows[10].below, 1);
  EXPECT_NEAR(known.rows[10].value, 4.5, 1e-12);
  EXPECT_EQ(values_of(known, 6), (std::vector<double>{5})) << "the worst that matters, 3 + (3 - 1)";
  EXPECT_TRUE(values_of(known, 7).empty());
  // Early values that are all the same say nothing; nor do those that too few have a later one to.
  for (TriedSettings& one : past) {
    if (!one.earlier.empty()) one.earlier = {3.0};
  }
  EXPECT_NEAR(values_of(values_by_rung(past, 5), 5)[0], 3, 1e-12);
  for (TriedSettings& one : past) one.earlier = {inf};
  EXPECT_TRUE(values_of(values_by_rung(past, 5), 5).empty());
}

TEST(Comparing, TakesTheHighestRungThatEnoughHaveReached) {
  const auto worths = [](const std::vector<TriedSettings>& past) {
    std::vector<double> values;
    for (const auto& row : values_by_rung(past, 6).rows) values.push_back(row.value);
    return values;
  };
  std::vector<TriedSettings> past;
  for (int i = 0; i < 6; ++i) past.push_back({{}, 0, 1.0 + i});
  EXPECT_EQ(values_by_rung(past, 7).rung, -1);
  EXPECT_TRUE(values_by_rung(past, 7).rows.empty());
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(worths(past)[i], 1.0 + static_cast<double>(i), 1e-12);
  // One that went on counts by what it was where they are compared.
  past[3] = {{}, 1, 0.1, {4.0}};
  EXPECT_EQ(worths(past).size(), 6u);
  EXPECT_NEAR(worths(past)[3], 4, 1e-12);
  // How bad what is bad is does not matter: 3.5 is the median, 1 the best.
  past[5].loss = 1000;
  EXPECT_NEAR(worths(past)[5], 6, 1e-12);
}

// What is stopped early and would have ended well.
TEST(Beliefs, SeeWhoEndsWell) {
  // Late losses fall with x, early ones rise with it, if only a little; y is good at 0.5 in both.
  const SearchSpace space({real_parameter("a.x", 0, 1), real_parameter("a.y", 0, 1)}, {});
  const auto early = [](double x, double y) { return 3 + 0.3 * x + std::pow(y - 0.5, 2); };
  const auto late = [](double x, double y) { return 2 - 1.0 * x + std::pow(y - 0.5, 2); };
  std::vector<TriedSettings> past;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const auto at = shifted_sobol(4, i, 2);
    const Settings settings = {{"a.x", at[0]}, {"a.y", at[1]}};
    if (i < 12) {
      past.push_back({settings, 1, late(at[0], at[1]), {early(at[0], at[1])}});
    } else {
      past.push_back({settings, 0, early(at[0], at[1])});
    }
  }
  past.push_back({{{"a.x", 0.05}, {"a.y", 0.5}}, 0, early(0.05, 0.5)});
  past.push_back({{{"a.x", 0.95}, {"a.y", 0.5}}, 0, early(0.95, 0.5)});
  past.push_back({{{"a.x", 0.1}, {"a.y", 0.02}}, 0, std::numeric_limits<double>::infinity()});
  past.push_back({{{"a.x", 0.4}, {"a.y", 0.5}}, -1, 0});
  EXPECT_LT(past[20].loss, past[21].loss);
  const TrialBeliefs beliefs = believe(space, {"gp", 1, 10}, past);
  EXPECT_EQ(beliefs.rung, 1);
  ASSERT_EQ(beliefs.values.size(), past.size());
  EXPECT_GT(beliefs.values[20], beliefs.values[21] + 0.5);
  EXPECT_TRUE(std::isinf(beliefs.values[22]));
  EXPECT_EQ(beliefs.values, believe(space, {"gp", 1, 10}, past).values) << "not a pure function";
  // Samplers that model nothing, and too few trials, believe nothing.
  EXPECT_EQ(believe(space, {"tpe", 1, 10}, past).rung, -1);
  EXPECT_EQ(believe(space, {"gp", 1, 30}, past).rung, -1);
}

TEST(ExpectedImprovement, GathersAroundTheBestAndKeepsFromWhatFails) {
  const SearchSpace space({real_parameter("a.x", 0, 1), real_parameter("a.y", 0, 1)}, {});
  std::vector<TriedSettings> past;
  for (std::uint32_t i = 0; i < 30; ++i) {
    const auto at = shifted_sobol(4, i, 2);
    // The nearer to the edge at 0.6 the better; beyond it, nothing ends.
    const double loss = at[0] > 0.6 ? std::numeric_limits<double>::infinity() : 1 - at[0];
    past.push_back({{{"a.x", at[0]}, {"a.y", at[1]}}, 0, loss});
  }
  double sum = 0;
  for (std::int64_t t = 30; t < 50; ++t)
    sum += search_number(propose(space, {"gp", 1, 10}, t, past)->at("a.x")) / 20;
  EXPECT_NEAR(sum, 0.55, 0.1);
}

TEST(ExpectedImprovement, SpreadsWhatRunsAtATime) {
  const SearchSpace space({real_parameter("a.x", 0, 1), real_parameter("a.y", 0, 1)}, {});
  std::vector<TriedSettings> past;
  for (std::uint32_t i = 0; i < 12; ++i) {
    const auto at = shifted_sobol(4, i, 2);
    // Too wiggly to be known after twelve trials.
    const double loss = std::sin(12 * at[0]) + std::sin(9 * at[1] * at[0]);
    past.push_back({{{"a.x", at[0]}, {"a.y", at[1]}}, 0, loss});
  }
  // Eight proposals without a result in between, that know of each other or do not: how far each is
  // from the nearest of the others.
  const auto spread = [&](bool know) {
    std::vector<TriedSettings> all = past;
    std::vector<Settings> proposed;
    for (std::int64_t t = 12; t < 20; ++t) {
      proposed.push_back(*propose(space, {"gp", 1, 10}, t, all));
      if (know) all.push_back({proposed.back(), -1, 0});
    }
    double sum = 0;
    for (const Settings& one : proposed) {
      double nearest = 1;
      for (const Settings& other : proposed) {
        if (&one == &other) continue;
        nearest = std::min(
            nearest, std::hypot(search_number(one.at("a.x")) - search_number(other.at("a.x")),
                                search_number(one.at("a.y")) - search_number(other.at("a.y"))));
      }
      sum += nearest;
    }
    return sum;
  };
  EXPECT_GT(spread(true), 1.5 * spread(false));
}

TEST(ExpectedImprovement, DoesNotTryTheBestAgainForItsLuck) {
  // Noise of the size of what is left to gain: trials go on to places that say something, and the
  // last of them still know where it is good.
  const SearchSpace space({real_parameter("a.x", 0, 1), real_parameter("a.y", 0, 1)}, {});
  PhiloxSequence noise(3, 1);
  std::vector<TriedSettings> past;
  for (std::int64_t t = 0; t < 30; ++t) {
    const Settings settings = *propose(space, {"gp", 2, 8}, t, past);
    const double x = search_number(settings.at("a.x")), y = search_number(settings.at("a.y"));
    const double loss = std::pow(x - 0.4, 2) + std::pow(y - 0.7, 2);
    past.push_back({settings, 0, loss + 0.02 * normal_quantile(noise.uniform())});
  }
  std::size_t near = 0;
  for (std::size_t i = 8; i < past.size(); ++i) {
    const double off = std::hypot(search_number(past[i].settings.at("a.x")) - 0.4,
                                  search_number(past[i].settings.at("a.y")) - 0.7);
    near += off < 0.25;
    for (std::size_t j = 0; j + 1 < i; ++j) {
      const double gap = std::hypot(
          search_number(past[i].settings.at("a.x")) - search_number(past[j].settings.at("a.x")),
          search_number(past[i].settings.at("a.y")) - search_number(past[j].settings.at("a.y")));
      EXPECT_GT(gap, 0.003) << i << " " << j;
    }
  }
  EXPECT_GE(near, 11u);
}

TEST(ExpectedImprovement, WithNothingButFailuresGoesOnEvenly) {
  const SearchSpace space({real_parameter("a.x", 0, 1)}, {});
  std::vector<TriedSettings> past;
  for (std::int64_t t = 0; t < 16; ++t) {
    const auto settings = propose(space, {"gp", 1, 2}, t, past);
    EXPECT_EQ(settings, propose(space, {"sobol", 1, 2}, t, past));
    past.push_back({*settings, 0, std::numeric_limits<double>::infinity()});
  }
}

TEST(ExpectedImprovement, FindsABowlsBottomSoonerThanParzen) {
  const SearchSpace space = mixed_space();
  double gp = 0, tpe = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    gp += best_found(space, "gp", seed, 40) / 5;
    tpe += best_found(space, "tpe", seed, 40) / 5;
  }
  EXPECT_LT(gp, 0.5 * tpe) << gp << " against " << tpe;
}

TEST(ExpectedImprovement, OfManyTrialsSomeAreEnough) {
  // More than a fit takes: still a proposal near the bottom, in a bearable time.
  const SearchSpace space({real_parameter("a.x", 0, 1)}, {});
  std::vector<TriedSettings> past;
  for (int i = 0; i < 1000; ++i) {
    const double x = (i + 0.5) / 1000;
    past.push_back({{{"a.x", x}}, 0, std::abs(x - 0.3)});
  }
  EXPECT_NEAR(search_number(propose(space, {"gp", 1, 10}, 1000, past)->at("a.x")), 0.3, 0.02);
}

}  // namespace
}  // namespace quintet
