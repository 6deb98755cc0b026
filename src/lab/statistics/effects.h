// What each factor does to the response, alone and together with each other one: as factors ("x
// 1.50"), with 95 % intervals, shares of the variance, and what is left after correction for having
// looked at many.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/statistics/linear_model.h"
#include "lab/statistics/table.h"

namespace quintet {

// Differences of logarithms below this are rounding.
inline constexpr double kSame = 1e-9;

// A factor by which the response is multiplied. Without noise to judge it by, the interval's ends
// are unknown.
struct Estimate {
  double factor = kUnknown, low = kUnknown, high = kUnknown;
  double p = kUnknown;  // of being seen by chance if there were nothing (factor 1)
  double p_holm = kUnknown;

  bool has_interval() const { return !std::isnan(low); }
  bool survives() const { return p_holm < 0.05; }
};

// A level against the first one of its factor, averaged alike over the levels of each other factor
// at which both ran.
struct MainEffect {
  std::size_t factor = 0, level = 0;
  Estimate estimate;
};

// By how much a level's effect differs at a level of another factor from what it is at that
// factor's first level.
struct Interaction {
  std::size_t factor = 0, level = 0, other = 0, other_level = 0;
  Estimate estimate;
};

// What the model explains and no factor or pair alone: in tables with holes they overlap. If it has
// degrees of freedom of its own, factors changed together and cannot be told apart.
inline constexpr const char* kShared = "shared by factors";

// A part of the variance of the logarithm: type II sums of squares, as a share of the whole. In
// balanced designs they add up to one with what is left.
struct Share {
  std::vector<std::size_t> factors;  // one or two; none: see `name`
  std::string name;                  // "zero", "zero x bandwidth", "blocks", "noise", ...
  double share = 0;
  double freedom = 0;
  double p = kUnknown, p_holm = kUnknown;  // F test; unknown for noise
  bool survives() const { return p_holm < 0.05; }
};

struct NoiseFloor {
  Noise noise;                     // what intervals rest on
  Noise repeats;                   // repetitions of the same setting
  Noise missed;                    // of settings about the model, where it gets into effects
  double spread = 0;               // one standard deviation, as a factor: 1.02
  double block_spread = kUnknown;  // the largest block over the smallest, as a factor
  // Two single runs must differ by this factor to be told apart in 95 of 100 cases.
  double resolution = kUnknown;
};

struct Effects {
  bool pairs = false;  // whether interactions could be estimated at all
  std::vector<MainEffect> main;
  std::vector<Interaction> interactions;
  std::vector<Share> shares;  // largest first, then what is left
  NoiseFloor noise;
  // In words: what could not be estimated, and why.
  std::vector<std::string> not_estimated;
};

// The two-way model, or the additive one where the table is too small for it.
LinearModel fit_model(const Table& table);

Effects effects_of(const Table& table, const LinearModel& model);

// A contrast's estimate with the wider of Student's and the bootstrap's interval.
Estimate estimate_of(const LinearModel& model, const Eigen::VectorXd& contrast,
                     double bootstrap_limit);

// The contrast "level against reference", at one level of `at` if given, averaged over the levels
// of all other factors at which both ran. Empty where they have nowhere run side by side.
struct At {
  std::size_t factor = 0, level = 0;
};
Eigen::VectorXd compare_levels(const Table& table, const LinearModel& model, std::size_t factor,
                               std::size_t level, std::size_t reference,
                               std::optional<At> at = std::nullopt);

// Holm's step-down correction (1979) of these probabilities; unknown ones are passed over.
std::vector<double> holm(std::span<const double> p);

}  // namespace quintet
