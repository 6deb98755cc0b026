#include "lab/statistics/scaling.h"

#include <algorithm>
#include <map>

namespace quintet {
namespace {

ScalingPoint point_of(const Cell& cell, double nodes, const Cell& base, double base_nodes) {
  // Work done in one step, in units of the base's.
  const bool rates = !std::isnan(cell.tokens_per_second) && !std::isnan(base.tokens_per_second) &&
                     base.tokens_per_second > 0;
  const double work =
      rates ? cell.tokens_per_second * cell.seconds / (base.tokens_per_second * base.seconds) : 1;
  ScalingPoint point;
  point.nodes = nodes;
  point.speed_up = work * base.seconds / cell.seconds;
  point.efficiency = point.speed_up * base_nodes / nodes;
  const double whole = base_nodes * base.seconds;
  for (const auto& [name, seconds] : cell.breakdown) {
    point.lost_to.emplace_back(name, nodes * seconds / work / whole);
  }
  for (const auto& [name, seconds] : base.breakdown) {
    const auto line = std::find_if(point.lost_to.begin(), point.lost_to.end(),
                                   [&](const auto& part) { return part.first == name; });
    const double before = base_nodes * seconds / whole;
    if (line == point.lost_to.end()) {
      point.lost_to.emplace_back(name, -before);
    } else {
      line->second -= before;
    }
  }
  std::stable_sort(point.lost_to.begin(), point.lost_to.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return point;
}

}  // namespace

std::vector<Scaling> scaling_of(const Table& table, const std::vector<Cell>& cells,
                                std::size_t nodes_factor) {
  const Factor& factor = table.factors[nodes_factor];
  std::vector<std::size_t> others;
  for (std::size_t f = 0; f < table.factors.size(); ++f) {
    if (f != nodes_factor) others.push_back(f);
  }
  std::map<std::vector<std::size_t>, std::vector<const Cell*>> groups;
  std::vector<std::vector<std::size_t>> order;
  for (const Cell& cell : cells) {
    if (std::isnan(cell.seconds)) continue;
    auto key = cell.level;
    key[nodes_factor] = 0;
    auto& group = groups[key];
    if (group.empty()) order.push_back(key);
    group.push_back(&cell);
  }
  std::vector<Scaling> all;
  for (const auto& key : order) {
    auto& group = groups[key];
    if (group.size() < 2) continue;
    const auto nodes = [&](const Cell* cell) {
      return numeric_value(factor.levels[cell->level[nodes_factor]]).value_or(kUnknown);
    };
    if (std::any_of(group.begin(), group.end(), [&](auto* c) { return !(nodes(c) > 0); })) continue;
    std::sort(group.begin(), group.end(), [&](auto* a, auto* b) { return nodes(a) < nodes(b); });
    Scaling scaling{table.describe(key, others), {}};
    for (const Cell* cell : group) {
      scaling.points.push_back(point_of(*cell, nodes(cell), *group[0], nodes(group[0])));
      scaling.points.back().nodes_level = cell->level[nodes_factor];
    }
    all.push_back(std::move(scaling));
  }
  return all;
}

}  // namespace quintet
