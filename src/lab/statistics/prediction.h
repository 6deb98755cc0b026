// How good predictions were, where the same settings were measured, too.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/statistics/table.h"

namespace quintet {

struct PredictedCell {
  std::vector<std::size_t> level;
  double measured = 0, predicted = 0;
  double error() const { return predicted / measured - 1; }  // +0.10: predicted 10 % too much
};

struct Regret {
  std::string environment;
  std::string chosen, best;  // layouts
  double regret = 0;         // how much worse the chosen one was measured than the best: 0.03
  std::size_t layouts = 0;   // among how many
};

struct Prediction {
  std::vector<PredictedCell> cells;
  double mean_error = kUnknown;           // with its sign
  double mean_absolute_error = kUnknown;  // without
  std::size_t worst = 0;                  // cell of the largest error
  std::size_t too_much = 0;               // cells for which more was predicted than measured
  double spearman = kUnknown, kendall = kUnknown;
  std::vector<Regret> regrets;  // by environment, where there was a choice
  double mean_regret = kUnknown, worst_regret = kUnknown;
};

// Both tables must have the same factors. Empty where no setting is in both.
Prediction compare_prediction(const Table& measured, const Table& predicted);

// Rank correlations; ties share their ranks (Spearman), tau-b (Kendall). Unknown below two pairs or
// where one side is constant.
double spearman_correlation(std::span<const double> x, std::span<const double> y);
double kendall_correlation(std::span<const double> x, std::span<const double> y);

}  // namespace quintet
