#include "lab/search/ladder.h"

#include <algorithm>
#include <numeric>

#include "base/philox.h"
#include "lab/statistics/prediction.h"

namespace quintet {
namespace {

constexpr std::size_t kResamples = 2000;

// The same settings on both models, in the order of the smaller.
struct LadderPair {
  const Trial *below, *above;
  double value;  // above; infinite where it failed
};

std::vector<LadderPair> pairs_between(std::span<const Trial> trials, std::int64_t from) {
  std::vector<LadderPair> pairs;
  for (const Trial* below : ranking(trials, from)) {
    for (const Trial& above : trials) {
      if (above.level != from + 1 || above.parent != below->id || above.pending()) continue;
      pairs.push_back({below, &above, above.value_at(0)});
    }
  }
  return pairs;
}

double spearman_of(const std::vector<LadderPair>& pairs, const std::vector<std::size_t>& chosen) {
  std::vector<double> order, values;
  for (const std::size_t i : chosen) {
    order.push_back(static_cast<double>(i));
    values.push_back(pairs[i].value);
  }
  return spearman_correlation(order, values);
}

double quantile_of(std::vector<double> values, double share) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  return values[at];
}

void add_intervals(const std::vector<LadderPair>& pairs, LadderStep& step) {
  PhiloxSequence random(1, stream_of("search.ladder"));
  std::vector<double> correlations, places;
  const auto count = static_cast<std::uint32_t>(pairs.size());
  for (std::size_t r = 0; r < kResamples; ++r) {
    std::vector<std::size_t> chosen(pairs.size());
    for (std::size_t& i : chosen) i = random.below(count);
    if (const double found = spearman_of(pairs, chosen); !std::isnan(found))
      correlations.push_back(found);
    const std::size_t best = *std::min_element(
        chosen.begin(), chosen.end(),
        [&](std::size_t a, std::size_t b) { return pairs[a].value < pairs[b].value; });
    places.push_back(static_cast<double>(best + 1));
  }
  step.low = quantile_of(correlations, 0.025);
  step.high = quantile_of(correlations, 0.975);
  step.next_trials = static_cast<std::int64_t>(quantile_of(places, 0.95));
}

// Where a parameter's value lies along its range; NaN without one.
double unit_in(const SearchParameter& parameter, const Trial& trial) {
  const auto found = trial.settings.find(parameter.key);
  if (found == trial.settings.end() || !parameter.ordered()) return std::nan("");
  return parameter.cell_of(found->second).middle();
}

double mean_unit(const SearchParameter& parameter, const std::vector<const Trial*>& ranked,
                 std::size_t count) {
  double sum = 0, there = 0;
  for (std::size_t i = 0; i < std::min(count, ranked.size()); ++i) {
    const double unit = unit_in(parameter, *ranked[i]);
    if (std::isnan(unit)) continue;
    sum += unit;
    ++there;
  }
  return there > 0 ? sum / there : std::nan("");
}

std::string value_text(const std::string& key, const Trial& trial) {
  const auto found = trial.settings.find(key);
  return found == trial.settings.end() ? "does not count" : setting_text(found->second);
}

// The smallest share of the steps after which training losses order the trials as in the end.
double settled_after(const std::vector<LadderPair>& pairs, const CurveOf& curve_of) {
  for (const double share : {0.125, 0.25, 0.5}) {
    std::vector<double> early, final_values;
    for (const LadderPair& pair : pairs) {
      const std::int64_t steps = pair.above->rungs.back().steps;
      const auto at = static_cast<std::int64_t>(share * static_cast<double>(steps));
      const auto loss = objective_in(curve_of(pair.above->id), "loss", at);
      if (!loss) continue;
      early.push_back(*loss);
      final_values.push_back(pair.value);
    }
    if (early.size() >= 3 && spearman_correlation(early, final_values) >= 0.9) return share;
  }
  return 1;
}

}  // namespace

std::vector<LadderStep> ladder_steps(const SearchFile& search, std::span<const Trial> trials,
                                     const CurveOf& curve_of) {
  std::vector<LadderStep> steps;
  for (std::int64_t from = 0; from + 1 < search.levels(); ++from) {
    const std::vector<LadderPair> pairs = pairs_between(trials, from);
    if (pairs.size() < 3) continue;
    LadderStep step;
    step.from = from;
    step.trials = pairs.size();
    std::vector<std::size_t> all(pairs.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    step.spearman = spearman_of(pairs, all);
    std::vector<double> order(all.begin(), all.end()), values;
    for (const LadderPair& pair : pairs) values.push_back(pair.value);
    step.kendall = kendall_correlation(order, values);
    add_intervals(pairs, step);
    const auto best =
        static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin());
    step.best_was = best + 1;
    step.lost = values[0] / values[best] - 1;
    step.next_share = settled_after(pairs, curve_of);
    std::vector<const Trial*> below, above;
    for (const LadderPair& pair : pairs) below.push_back(pair.below);
    above = ranking(trials, from + 1);
    if (above.empty()) continue;
    const std::size_t quarter = (pairs.size() + 3) / 4;
    for (const SearchParameter& parameter : search.space.parameters()) {
      step.moved.push_back(
          {parameter.key, value_text(parameter.key, *below[0]),
           value_text(parameter.key, *above[0]),
           unit_in(parameter, *above[0]) - unit_in(parameter, *below[0]),
           mean_unit(parameter, above, quarter) - mean_unit(parameter, below, quarter)});
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace quintet
