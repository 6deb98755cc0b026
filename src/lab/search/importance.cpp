#include "lab/search/importance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "lab/statistics/distributions.h"

namespace quintet {
namespace {

// From 1; equal losses share the mean of their ranks.
std::vector<double> loss_ranks(std::span<const TriedSettings> observations) {
  std::vector<std::size_t> order(observations.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return observations[a].loss < observations[b].loss;
  });
  std::vector<double> ranks(order.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && observations[order[end]].loss == observations[order[begin]].loss)
      ++end;
    for (std::size_t i = begin; i < end; ++i)
      ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
    begin = end;
  }
  return ranks;
}

// The group of each observation, from 0; a parameter that does not count is group 0.
std::vector<std::size_t> groups_by(const SearchParameter& parameter,
                                   std::span<const TriedSettings> observations) {
  constexpr std::size_t kMostGroups = 5, kFewestInGroup = 4;
  std::vector<std::size_t> group(observations.size(), 0);
  std::vector<std::pair<double, std::size_t>> counting;
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const auto found = observations[i].settings.find(parameter.key);
    if (found != observations[i].settings.end())
      counting.emplace_back(parameter.cell_of(found->second).middle(), i);
  }
  std::sort(counting.begin(), counting.end());
  std::map<double, std::size_t> different;
  for (const auto& [unit, i] : counting) different.emplace(unit, different.size() + 1);
  const bool by_value = !parameter.ordered() || different.size() <= kMostGroups;
  const std::size_t groups =
      std::clamp<std::size_t>(counting.size() / kFewestInGroup, 2, kMostGroups);
  for (std::size_t k = 0; k < counting.size(); ++k) {
    const auto [unit, i] = counting[k];
    group[i] = by_value ? different[unit] : 1 + k * groups / counting.size();
    // Equal values are in the same group.
    if (!by_value && k > 0 && counting[k - 1].first == unit)
      group[i] = group[counting[k - 1].second];
  }
  return group;
}

Importance importance_of(const SearchParameter& parameter,
                         std::span<const TriedSettings> observations,
                         const std::vector<double>& ranks) {
  const std::vector<std::size_t> group = groups_by(parameter, observations);
  std::map<std::size_t, std::pair<double, double>> sums;  // count, sum of ranks
  double total = 0;
  const auto count = static_cast<double>(ranks.size());
  const double mean = (count + 1) / 2;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    sums[group[i]].first += 1;
    sums[group[i]].second += ranks[i];
    total += (ranks[i] - mean) * (ranks[i] - mean);
  }
  Importance found{parameter.key, 0, 1, sums.size()};
  double between = 0;
  for (const auto& [name, sum] : sums) {
    const double off = sum.second / sum.first - mean;
    between += sum.first * off * off;
  }
  const double freedom = static_cast<double>(sums.size()) - 1, left = count - 1 - freedom;
  if (freedom < 1 || left < 1 || total <= 0) return found;
  const double within = (total - between) / left;
  found.share = std::max(0.0, (between - freedom * within) / total);
  found.chance = within > 0 ? fisher_tail(between / freedom / within, freedom, left) : 0;
  return found;
}

}  // namespace

std::vector<Importance> importances(const SearchSpace& space,
                                    std::span<const TriedSettings> observations) {
  std::vector<Importance> all;
  if (observations.size() < 6) return all;
  const std::vector<double> ranks = loss_ranks(observations);
  for (const SearchParameter& parameter : space.parameters())
    all.push_back(importance_of(parameter, observations, ranks));
  std::stable_sort(all.begin(), all.end(),
                   [](const Importance& a, const Importance& b) { return a.share > b.share; });
  return all;
}

}  // namespace quintet
