// What a model tells about the next larger one: whether the same settings are good on both, where
// the best of them moves, and how much the next model should be given.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/search/search_file.h"
#include "lab/search/trial.h"
#include "lab/search/trial_run.h"

namespace quintet {

// How far the best value of a parameter moves from one model to the next.
struct MovedParameter {
  std::string key;
  std::string below, above;  // the best trial's value on each
  // Along its range, from -1 to 1: of the best trial, and of the mean of the best quarter, which
  // one lucky trial moves less. NaN where there is no order, or not on both.
  double best = std::nan(""), quarter = std::nan("");
};

struct LadderStep {
  std::int64_t from = 0;   // level; the next is above
  std::size_t trials = 0;  // that ran on both
  // Of their order below with their values above; a 95 % interval by bootstrap over trials.
  double spearman = std::nan(""), low = std::nan(""), high = std::nan("");
  double kendall = std::nan("");
  std::size_t best_was = 0;  // the place of the best above in the order below, from 1
  double lost = 0;           // by how much the best below is worse above than the best above: 0.02
  std::vector<MovedParameter> moved;
  // For the next model: so many trials have the best among them 95 times in 100 (bootstrap), and
  // after this share of the steps their order is as good as final (correlation 0.9).
  std::int64_t next_trials = 0;
  double next_share = 1;

  bool in_top_quarter() const { return best_was > 0 && best_was <= (trials + 3) / 4; }
};

using CurveOf = std::function<std::vector<CurveStep>(std::int64_t trial)>;
// Steps of the ladder with at least three trials on both models.
std::vector<LadderStep> ladder_steps(const SearchFile& search, std::span<const Trial> trials,
                                     const CurveOf& curve_of);

}  // namespace quintet
