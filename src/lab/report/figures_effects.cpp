#include <algorithm>
#include <map>

#include "lab/report/figures.h"

namespace quintet {
namespace {

constexpr std::size_t kMostInteractions = 4, kMostCrossovers = 4, kMostScalings = 8;

// Mean responses of pairs of levels, over those settings of the other factors at which most pairs
// ran, so that like is compared with like.
std::map<std::pair<std::size_t, std::size_t>, Estimate> pair_means(const Analysis& analysis,
                                                                   std::size_t f, std::size_t g) {
  std::map<std::vector<std::size_t>, std::vector<std::size_t>> groups;
  for (std::size_t c = 0; c < analysis.cells.size(); ++c) {
    auto rest = analysis.cells[c].level;
    rest[f] = rest[g] = 0;
    groups[rest].push_back(c);
  }
  std::size_t most = 0;
  for (const auto& [rest, cells] : groups) most = std::max(most, cells.size());
  struct Sum {
    double logs = 0, variance = 0, count = 0;
  };
  std::map<std::pair<std::size_t, std::size_t>, Sum> sums;
  for (const auto& [rest, cells] : groups) {
    if (cells.size() < most) continue;
    for (const std::size_t c : cells) {
      Sum& sum = sums[{analysis.cells[c].level[f], analysis.cells[c].level[g]}];
      const Estimate& mean = analysis.cell_means[c];
      const double half = mean.has_interval() ? std::log(mean.high / mean.factor) : kUnknown;
      sum.logs += std::log(mean.factor);
      sum.variance += half * half;
      sum.count += 1;
    }
  }
  std::map<std::pair<std::size_t, std::size_t>, Estimate> means;
  for (const auto& [pair, sum] : sums) {
    Estimate& mean = means[pair];
    mean.factor = std::exp(sum.logs / sum.count);
    const double half = std::sqrt(sum.variance) / sum.count;
    mean.low = mean.factor * std::exp(-half);
    mean.high = mean.factor * std::exp(half);
  }
  return means;
}

void set_levels_axis(const Factor& factor, Axis& axis) {
  axis.label = factor.name;
  axis.logarithmic = factor.numeric && factor.logarithmic;
  for (std::size_t l = 0; l < factor.levels.size(); ++l) {
    axis.ticks.push_back(
        {factor.numeric ? factor.values[l] : static_cast<double>(l), factor.levels[l]});
  }
}

void add_interaction(const Analysis& analysis, const Share& share, Page& page) {
  const Table& table = analysis.table;
  // Along the numeric factor, or the one with more levels.
  std::size_t along = share.factors[0], lines = share.factors[1];
  const auto weight = [&](std::size_t f) {
    return table.factors[f].levels.size() + (table.factors[f].numeric ? 100 : 0) +
           (is_environment(table.factors[f].name) ? 50 : 0);
  };
  if (weight(lines) > weight(along)) std::swap(along, lines);
  if (table.factors[lines].levels.size() > kColours) return;
  const auto means = pair_means(analysis, lines, along);
  XyChart chart;
  chart.title =
      fmt::format("Interaction of {} and {}", table.factors[lines].name, table.factors[along].name);
  set_levels_axis(table.factors[along], chart.x);
  chart.y = {.label = axis_label(table.response),
             .logarithmic = true,
             .format = axis_format(table.response)};
  for (std::size_t level = 0; level < table.factors[lines].levels.size(); ++level) {
    Series series;
    series.name = table.factors[lines].name + " " + table.factors[lines].levels[level];
    series.colour = level;
    for (std::size_t x = 0; x < chart.x.ticks.size(); ++x) {
      const auto mean = means.find({level, x});
      if (mean == means.end()) continue;
      const Estimate& estimate = mean->second;
      series.points.push_back(
          {chart.x.ticks[x].value, estimate.factor, estimate.low, estimate.high,
           fmt::format("{}, {} {}: {}", series.name, table.factors[along].name,
                       chart.x.ticks[x].label, format_response(table.response, estimate.factor))});
    }
    chart.series.push_back(std::move(series));
  }
  page.figure(
      fmt::format("{} and {}", table.factors[lines].name, table.factors[along].name),
      fmt::format("Explains {:.1f} % of the variance beyond what each does alone. Parallel lines "
                  "would mean that neither changes what the other does. Geometric means over "
                  "all other factors.",
                  100 * share.share),
      chart);
}

void add_crossover(const Analysis& analysis, const Crossover& crossover, Page& page) {
  const Table& table = analysis.table;
  const Factor& factor = table.factors[crossover.factor];
  const Factor& along = table.factors[crossover.along];
  const std::string first = factor.name + " " + factor.levels[crossover.first];
  const std::string second = factor.name + " " + factor.levels[crossover.second];
  XyChart chart;
  chart.title = describe(table, crossover);
  set_levels_axis(along, chart.x);
  chart.y = {.label = "ratio", .logarithmic = true, .format = short_number};
  chart.level = 1;
  Series curve, levels;
  curve.name = fmt::format("{} over {}", second, first);
  curve.band = true;
  curve.markers = false;
  for (const CurvePoint& point : crossover.curve) {
    curve.points.push_back({point.x, point.ratio, point.low, point.high, ""});
  }
  levels.line = false;
  for (std::size_t i = 0; i < crossover.ratios.size(); ++i) {
    const Estimate& ratio = crossover.ratios[i];
    const std::size_t level = crossover.along_levels[i];
    levels.points.push_back(
        {along.values[level], ratio.factor, ratio.low, ratio.high,
         fmt::format("{} {}: {}", along.name, along.levels[level], format_estimate(ratio))});
  }
  chart.series = {std::move(curve), std::move(levels)};
  for (const Crossing& crossing : crossover.crossings) {
    chart.marks.push_back(
        {crossing.at, crossing.low, crossing.high, format_between(along, crossing.at),
         fmt::format("crossover at {} ({} to {})", format_between(along, crossing.at),
                     format_between(along, crossing.low), format_between(along, crossing.high))});
  }
  page.figure(fmt::format("{} against {} along {}", second, first, along.name),
              describe(table, crossover) +
                  ". Bands are 95 % intervals; the shaded stretch is the "
                  "interval of the crossover.",
              chart);
}

}  // namespace

void add_interaction_figures(const Analysis& analysis, Page& page) {
  // Those with a method in them before those of two environments.
  std::size_t shown = 0;
  for (const bool methods : {true, false}) {
    for (const Share& share : analysis.effects.shares) {
      if (share.factors.size() != 2 || shown == kMostInteractions || !share.survives()) continue;
      const auto& factors = analysis.table.factors;
      const bool environments = is_environment(factors[share.factors[0]].name) &&
                                is_environment(factors[share.factors[1]].name);
      if (environments == methods) continue;
      add_interaction(analysis, share, page);
      ++shown;
    }
  }
  if (shown == 0 && !analysis.effects.interactions.empty()) {
    page.paragraph(
        "No interaction is beyond chance (Holm): the methods do not change each other's cost "
        "by more than noise.");
  }
}

void add_crossover_figures(const Analysis& analysis, Page& page) {
  // Certain ones first, of methods along environments first.
  std::vector<const Crossover*> found;
  for (const Crossover& crossover : analysis.crossovers) {
    if (!crossover.crossings.empty()) found.push_back(&crossover);
  }
  const auto rank = [&](const Crossover* crossover) {
    const bool certain = std::any_of(crossover->crossings.begin(), crossover->crossings.end(),
                                     [](const Crossing& crossing) { return crossing.certain(); });
    const Table& table = analysis.table;
    return (certain ? 0 : 4) + (is_environment(table.factors[crossover->along].name) ? 0 : 2) +
           (is_environment(table.factors[crossover->factor].name) ? 1 : 0);
  };
  std::stable_sort(found.begin(), found.end(), [&](auto* a, auto* b) { return rank(a) < rank(b); });
  if (found.size() > kMostCrossovers) found.resize(kMostCrossovers);
  for (const Crossover* crossover : found) add_crossover(analysis, *crossover, page);
  if (found.empty() && !analysis.crossovers.empty()) {
    page.paragraph("No crossover in the range: of every two levels one is ahead throughout.");
  }
}

void add_scaling_figure(const Analysis& analysis, Page& page) {
  if (analysis.scalings.empty()) return;
  const auto nodes = analysis.table.find("nodes");
  if (!nodes) return;
  std::vector<const Scaling*> order;
  for (const Scaling& scaling : analysis.scalings) order.push_back(&scaling);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) {
    return a->points.back().efficiency > b->points.back().efficiency;
  });
  XyChart chart;
  chart.title = "Efficiency over nodes";
  const Factor& factor = analysis.table.factors[*nodes];
  chart.x.label = "nodes";
  chart.x.logarithmic = true;
  for (const std::string& level : factor.levels) {
    chart.x.ticks.push_back({numeric_value(level).value_or(1), level});
  }
  chart.y = {.label = "efficiency", .from_zero = true, .format = [](double share) {
               return fmt::format("{:.0f} %", 100 * share);
             }};
  chart.level = 1;
  // All lines in grey, some of them in colour: from the best to the worst.
  const std::size_t coloured = std::min(order.size(), kMostScalings);
  std::size_t next = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool shown = coloured == order.size() ||
                       i == next * (order.size() - 1) / std::max<std::size_t>(coloured - 1, 1);
    Series series;
    series.faint = !shown;
    series.markers = shown;
    series.name = shown ? (order[i]->setting.empty() ? "all" : order[i]->setting) : "";
    series.colour = shown ? next++ : 0;
    for (const ScalingPoint& point : order[i]->points) {
      std::string tip = fmt::format("{}, {:g} nodes: {:.0f} %", order[i]->setting, point.nodes,
                                    100 * point.efficiency);
      if (point.nodes > order[i]->points.front().nodes && !point.lost_to.empty() &&
          point.lost_to.front().second > 0) {
        tip += ", lost mostly to " + point.lost_to.front().first;
      }
      series.points.push_back({point.nodes, point.efficiency, kUnknown, kUnknown, tip});
    }
    chart.series.push_back(std::move(series));
  }
  page.figure("What more nodes bring",
              "Work per second and node, against the smallest node count of the same setting.",
              chart);
}

}  // namespace quintet
