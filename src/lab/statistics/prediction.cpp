#include "lab/statistics/prediction.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace quintet {
namespace {

// From 1; equal values share the mean of their ranks.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
    }
    begin = end;
  }
  return ranks;
}

}  // namespace

double spearman_correlation(std::span<const double> x, std::span<const double> y) {
  const auto a = ranks_of(x), b = ranks_of(y);
  const double middle = (static_cast<double>(a.size()) + 1) / 2;
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    xx += (a[i] - middle) * (a[i] - middle);
    yy += (b[i] - middle) * (b[i] - middle);
    xy += (a[i] - middle) * (b[i] - middle);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : kUnknown;
}

double kendall_correlation(std::span<const double> x, std::span<const double> y) {
  double agree = 0, x_pairs = 0, y_pairs = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const int a = (x[i] > x[j]) - (x[i] < x[j]), b = (y[i] > y[j]) - (y[i] < y[j]);
      agree += a * b;
      x_pairs += a != 0;
      y_pairs += b != 0;
    }
  }
  return x_pairs > 0 && y_pairs > 0 ? agree / std::sqrt(x_pairs * y_pairs) : kUnknown;
}

Prediction compare_prediction(const Table& measured, const Table& predicted) {
  std::map<std::vector<std::size_t>, double> guesses;
  for (const Cell& cell : cells_of(predicted)) guesses[cell.level] = cell.response;
  Prediction result;
  for (const Cell& cell : cells_of(measured)) {
    const auto guess = guesses.find(cell.level);
    if (guess == guesses.end()) continue;
    result.cells.push_back({cell.level, cell.response, guess->second});
  }
  if (result.cells.empty()) return result;
  std::vector<double> real, guessed;
  double sum = 0, absolute = 0;
  for (std::size_t i = 0; i < result.cells.size(); ++i) {
    const PredictedCell& cell = result.cells[i];
    real.push_back(cell.measured);
    guessed.push_back(cell.predicted);
    sum += cell.error();
    absolute += std::abs(cell.error());
    result.too_much += cell.error() > 0;
    if (std::abs(cell.error()) > std::abs(result.cells[result.worst].error())) result.worst = i;
  }
  const auto count = static_cast<double>(result.cells.size());
  result.mean_error = sum / count;
  result.mean_absolute_error = absolute / count;
  result.spearman = spearman_correlation(guessed, real);
  result.kendall = kendall_correlation(guessed, real);

  const auto [environment, layout] = part_factors(measured);
  std::map<std::string, std::vector<const PredictedCell*>> groups;
  for (const PredictedCell& cell : result.cells) {
    groups[measured.describe(cell.level, environment)].push_back(&cell);
  }
  double regrets = 0;
  for (const auto& [where, cells] : groups) {
    if (cells.size() < 2) continue;
    // What less of is better: the response, or one over it.
    const auto cost = [&](double value) { return measured.more_is_better ? 1 / value : value; };
    const auto* chosen = *std::min_element(cells.begin(), cells.end(), [&](auto* a, auto* b) {
      return cost(a->predicted) < cost(b->predicted);
    });
    const auto* best = *std::min_element(cells.begin(), cells.end(), [&](auto* a, auto* b) {
      return cost(a->measured) < cost(b->measured);
    });
    result.regrets.push_back({where, measured.describe(chosen->level, layout),
                              measured.describe(best->level, layout),
                              cost(chosen->measured) / cost(best->measured) - 1, cells.size()});
    regrets += result.regrets.back().regret;
    result.worst_regret = std::isnan(result.worst_regret)
                              ? result.regrets.back().regret
                              : std::max(result.worst_regret, result.regrets.back().regret);
  }
  if (!result.regrets.empty()) {
    result.mean_regret = regrets / static_cast<double>(result.regrets.size());
  }
  return result;
}

}  // namespace quintet
