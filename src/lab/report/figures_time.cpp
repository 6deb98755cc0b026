#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "lab/report/figures.h"

namespace quintet {
namespace {

constexpr std::size_t kMostFigures = 4, kMostBars = 14, kMostColoured = 7;

// Cells by environment, in order of appearance; `but`: a factor that is not part of it.
struct CellGroup {
  std::string environment;
  std::vector<std::size_t> cells;
};
std::vector<CellGroup> groups_of(const Analysis& analysis, std::optional<std::size_t> but) {
  auto environment = part_factors(analysis.table).first;
  if (but) std::erase(environment, *but);
  std::vector<CellGroup> groups;
  std::map<std::string, std::size_t> places;
  for (std::size_t c = 0; c < analysis.cells.size(); ++c) {
    const std::string where = analysis.table.describe(analysis.cells[c].level, environment);
    const auto [place, fresh] = places.try_emplace(where, groups.size());
    if (fresh) groups.push_back({where, {}});
    groups[place->second].cells.push_back(c);
  }
  return groups;
}

// The first, the last and what lies evenly between.
template <class T>
std::vector<T> some_of(const std::vector<T>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

// The numeric factor that pictures run along: bandwidth, then another environment, then any.
std::optional<std::size_t> main_axis(const Table& table) {
  std::optional<std::size_t> best;
  int rank = 0;
  for (std::size_t f = 0; f < table.factors.size(); ++f) {
    if (!table.factors[f].numeric) continue;
    const int now = table.factors[f].name == "bandwidth"    ? 3
                    : is_environment(table.factors[f].name) ? 2
                                                            : 1;
    if (now > rank) best = f, rank = now;
  }
  return best;
}

std::string cell_tip(const Analysis& analysis, std::size_t cell) {
  const Estimate& mean = analysis.cell_means[cell];
  const auto& response = analysis.table.response;
  std::string tip = fmt::format(
      "{}: {}", analysis.table.describe(analysis.cells[cell].level, analysis.table.all_factors()),
      format_response(response, mean.factor));
  if (mean.has_interval() && mean.low < mean.high) {
    tip += fmt::format(" ({} to {})", format_response(response, mean.low),
                       format_response(response, mean.high));
  }
  return tip;
}

void add_lines(const Analysis& analysis, const CellGroup& group, std::size_t axis, Page& page) {
  const Table& table = analysis.table;
  const Factor& factor = table.factors[axis];
  const auto layout_factors = [&] {
    auto layout = part_factors(table).second;
    std::erase(layout, axis);
    return layout;
  }();
  struct Layout {
    std::vector<std::size_t> cells;
    bool wins = false;
    double sum = 0;
  };
  std::map<std::string, Layout> layouts;
  std::vector<std::optional<std::size_t>> best(factor.levels.size());
  for (const std::size_t c : group.cells) {
    const Cell& cell = analysis.cells[c];
    layouts[table.describe(cell.level, layout_factors)].cells.push_back(c);
    auto& fastest = best[cell.level[axis]];
    if (!fastest || cell.response < analysis.cells[*fastest].response) fastest = c;
  }
  // Winners in colour, then the fastest on average, until colours run out.
  std::vector<std::pair<double, std::string>> order;
  for (auto& [name, layout] : layouts) {
    for (const std::size_t c : layout.cells) {
      layout.wins = layout.wins || best[analysis.cells[c].level[axis]] == c;
      layout.sum += std::log(analysis.cells[c].response) / static_cast<double>(layout.cells.size());
    }
    order.emplace_back(layout.wins ? -1e9 + layout.sum : layout.sum, name);
  }
  std::sort(order.begin(), order.end());
  XyChart chart;
  chart.title = fmt::format("{} along {}, a line for each layout{}{}", axis_label(table.response),
                            factor.name, group.environment.empty() ? "" : ", ", group.environment);
  chart.x.label = factor.name;
  chart.x.logarithmic = factor.logarithmic;
  for (std::size_t l = 0; l < factor.levels.size(); ++l) {
    chart.x.ticks.push_back({factor.values[l], factor.levels[l]});
  }
  chart.y = {.label = axis_label(table.response),
             .logarithmic = true,
             .format = axis_format(table.response)};
  const std::size_t coloured = layouts.size() <= kColours ? kColours : kMostColoured;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Series series;
    series.faint = i >= coloured;
    series.markers = !series.faint;
    series.name = series.faint ? "" : order[i].second.empty() ? "all" : order[i].second;
    series.colour = i;
    auto cells = layouts[order[i].second].cells;
    std::sort(cells.begin(), cells.end(), [&](std::size_t a, std::size_t b) {
      return analysis.cells[a].level[axis] < analysis.cells[b].level[axis];
    });
    for (const std::size_t c : cells) {
      const Estimate& mean = analysis.cell_means[c];
      series.points.push_back({factor.values[analysis.cells[c].level[axis]], mean.factor, mean.low,
                               mean.high, series.faint ? order[i].second : cell_tip(analysis, c)});
    }
    chart.series.push_back(std::move(series));
  }
  std::string caption = "Geometric means of repeats; bars are 95 % intervals";
  caption += order.size() > coloured
                 ? fmt::format(
                       "; in colour the layouts that win somewhere and the fastest of the rest, "
                       "in grey {} others.",
                       order.size() - coloured)
                 : ".";
  page.figure(fmt::format("{} by layout and {}{}{}", axis_label(table.response), factor.name,
                          group.environment.empty() ? "" : ": ", group.environment),
              caption, chart);
}

void add_bars(const Analysis& analysis, const CellGroup& group, Page& page) {
  const Table& table = analysis.table;
  auto cells = group.cells;
  std::sort(cells.begin(), cells.end(), [&](std::size_t a, std::size_t b) {
    return analysis.cells[a].response < analysis.cells[b].response;
  });
  const auto shown = some_of(cells, 2 * kMostBars);
  auto layout = part_factors(table).second;
  if (layout.empty()) layout = table.all_factors();
  BarChart chart;
  chart.title = fmt::format("{} of {} settings", axis_label(table.response), shown.size());
  chart.x = {.label = axis_label(table.response), .format = axis_format(table.response)};
  chart.parts = {""};
  for (const std::size_t c : shown) {
    const Estimate& mean = analysis.cell_means[c];
    chart.bars.push_back({table.describe(analysis.cells[c].level, layout),
                          {mean.factor},
                          mean.low,
                          mean.high,
                          cell_tip(analysis, c),
                          format_response(table.response, mean.factor)});
  }
  page.figure(fmt::format("{} by layout{}{}", axis_label(table.response),
                          group.environment.empty() ? "" : ": ", group.environment),
              shown.size() < cells.size()
                  ? fmt::format("{} of {} settings, evenly from fastest to slowest; lines are 95 % "
                                "intervals.",
                                shown.size(), cells.size())
                  : "Sorted; lines are 95 % intervals.",
              chart);
}

}  // namespace

ValueFormat axis_format(const std::string& response) {
  if (response.find("per_second") != std::string::npos) return short_number;
  if (response.find("second") != std::string::npos) return short_seconds;
  if (response.find("bytes") != std::string::npos) return short_bytes;
  return short_number;
}

std::string axis_label(const std::string& response) {
  if (response == "step_seconds") return "Time per step";
  if (response == "tokens_per_second") return "Tokens per second";
  if (response == "memory_bytes") return "Memory";
  return response;
}

StackedParts stacked_parts(const std::vector<Breakdown>& rows) {
  std::vector<std::string> names;
  std::map<std::string, double> largest;  // share of a row, at most
  for (const Breakdown& row : rows) {
    double whole = 0;
    for (const auto& part : row) whole += std::max(part.second, 0.0);
    for (const auto& [name, seconds] : row) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      largest[name] = std::max(largest[name], whole > 0 ? seconds / whole : 0);
    }
  }
  // Largest first decides who keeps a colour; the order of the breakdown decides where it stands.
  std::vector<std::string> by_size = names;
  std::erase(by_size, "other");
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](const auto& a, const auto& b) { return largest[a] > largest[b]; });
  std::set<std::string> kept;
  for (const std::string& name : by_size) {
    if (kept.size() + 1 < kColours && largest[name] >= 0.01) kept.insert(name);
  }
  StackedParts stacked;
  for (const std::string& name : names) {
    if (kept.contains(name)) stacked.names.push_back(name);
  }
  stacked.names.push_back("other");
  for (const Breakdown& row : rows) {
    std::vector<double> parts(stacked.names.size(), 0);
    for (const auto& [name, seconds] : row) {
      const auto place = std::find(stacked.names.begin(), stacked.names.end(), name);
      const auto p = place == stacked.names.end()
                         ? stacked.names.size() - 1
                         : static_cast<std::size_t>(place - stacked.names.begin());
      parts[p] += std::max(seconds, 0.0);
    }
    stacked.rows.push_back(std::move(parts));
  }
  return stacked;
}

void add_response_figures(const Analysis& analysis, Page& page) {
  const auto axis = main_axis(analysis.table);
  const auto groups = groups_of(analysis, axis);
  const auto shown = some_of(groups, kMostFigures);
  for (const CellGroup& group : shown) {
    axis ? add_lines(analysis, group, *axis, page) : add_bars(analysis, group, page);
  }
  if (shown.size() < groups.size()) {
    page.paragraph(fmt::format("{} of {} environments are drawn; the table of means has them all.",
                               shown.size(), groups.size()));
  }
}

void add_breakdown_figures(const Analysis& analysis, Page& page) {
  const auto layout = part_factors(analysis.table).second;
  std::vector<CellGroup> groups = groups_of(analysis, std::nullopt);
  for (CellGroup& group : groups) {
    std::erase_if(group.cells, [&](std::size_t c) { return analysis.cells[c].breakdown.empty(); });
  }
  std::erase_if(groups, [](const CellGroup& group) { return group.cells.empty(); });
  if (groups.empty()) return;
  // The two ends of the range, where the answers differ most.
  const auto shown = some_of(groups, 2);
  std::vector<Breakdown> rows;
  BarChart chart;
  bool cut = false;
  for (CellGroup group : shown) {
    std::sort(group.cells.begin(), group.cells.end(), [&](std::size_t a, std::size_t b) {
      return analysis.cells[a].response < analysis.cells[b].response;
    });
    if (!group.environment.empty()) {
      chart.bars.push_back({.label = group.environment, .heading = true});
      rows.emplace_back();
    }
    cut = cut || group.cells.size() > kMostBars;
    for (const std::size_t c : some_of(group.cells, kMostBars)) {
      const Cell& cell = analysis.cells[c];
      chart.bars.push_back(
          {.label = layout.empty() ? "mean" : analysis.table.describe(cell.level, layout),
           .value = format_response("seconds", cell.response)});
      rows.push_back(cell.breakdown);
    }
  }
  StackedParts stacked = stacked_parts(rows);
  chart.parts = stacked.names;
  for (std::size_t b = 0; b < chart.bars.size(); ++b) chart.bars[b].parts = stacked.rows[b];
  chart.title = "Time breakdown per step by layout";
  chart.x = {.label = "Time per step, mean of all ranks", .format = short_seconds};
  page.figure(
      "Where the time goes",
      fmt::format("Fastest first{}{}.", cut ? ", evenly from all layouts" : "",
                  groups.size() > shown.size()
                      ? fmt::format("; the first and the last of {} environments", groups.size())
                      : ""),
      chart);
}

}  // namespace quintet
