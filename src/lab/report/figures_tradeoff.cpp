#include <algorithm>

#include "base/text.h"
#include "lab/report/figures.h"

namespace quintet {
namespace {

constexpr std::size_t kMostTradeoffs = 2;

void add_tradeoff(const Analysis& analysis, const Tradeoff& tradeoff, Page& page) {
  const Table& table = analysis.table;
  const auto layout = part_factors(table).second;
  XyChart chart;
  chart.title = "Memory against " + axis_label(table.response);
  chart.x = {.label = axis_label(table.response),
             .logarithmic = true,
             .format = axis_format(table.response)};
  chart.y = {.label = "Memory, largest rank", .logarithmic = true, .format = short_bytes};
  Series front, others;
  front.name = "worth having";
  front.colour = 0;
  others.name = "another is better in both";
  others.colour = 1;
  others.line = false;
  others.hollow = true;
  for (const TradeoffPoint& point : tradeoff.points) {
    const Cell& cell = analysis.cells[point.cell];
    (point.beaten_by ? others : front)
        .points.push_back({cell.response, cell.memory_bytes, kUnknown, kUnknown,
                           fmt::format("{}: {}, {}", table.describe(cell.level, layout),
                                       format_response(table.response, cell.response),
                                       human_bytes(cell.memory_bytes))});
  }
  double least = INFINITY, most = 0;
  for (const TradeoffPoint& point : tradeoff.points) {
    least = std::min(least, analysis.cells[point.cell].memory_bytes);
    most = std::max(most, analysis.cells[point.cell].memory_bytes);
  }
  chart.y.ticks = byte_ticks(least, most);
  if (others.points.empty()) others.name.clear();
  chart.series = {std::move(others), std::move(front)};
  page.figure(fmt::format("Memory against time{}{}", tradeoff.environment.empty() ? "" : ": ",
                          tradeoff.environment),
              "Each point a layout; the line joins those of which no other is as good in both.",
              chart);
}

}  // namespace

void add_tradeoff_figures(const Analysis& analysis, Page& page) {
  const auto& all = analysis.tradeoffs;
  if (all.empty()) return;
  add_tradeoff(analysis, all.front(), page);
  if (all.size() > 1 && kMostTradeoffs > 1) add_tradeoff(analysis, all.back(), page);
}

void add_prediction_figure(const Analysis& analysis, Page& page) {
  const Prediction& prediction = analysis.prediction;
  if (prediction.cells.empty()) return;
  const Table& table = analysis.compared;
  XyChart chart;
  chart.title = "Predicted against measured";
  chart.x = {.label = "Measured", .logarithmic = true, .format = axis_format(table.response)};
  chart.y = {.label = "Predicted", .logarithmic = true, .format = axis_format(table.response)};
  chart.diagonal = true;
  Series series;
  series.line = false;
  for (const PredictedCell& cell : prediction.cells) {
    series.points.push_back(
        {cell.measured, cell.predicted, kUnknown, kUnknown,
         fmt::format("{}: measured {}, predicted {} ({:+.1f} %)",
                     table.describe(cell.level, table.all_factors()),
                     format_response(table.response, cell.measured),
                     format_response(table.response, cell.predicted), 100 * cell.error())});
  }
  chart.series.push_back(std::move(series));
  page.figure(
      "Predicted against measured",
      fmt::format("{} settings; on the line the two agree. Error {:+.1f} % on average, {:.1f} % "
                  "without sign; rank correlation {:.2f} (Spearman), {:.2f} (Kendall).",
                  prediction.cells.size(), 100 * prediction.mean_error,
                  100 * prediction.mean_absolute_error, prediction.spearman, prediction.kendall),
      chart);
}

}  // namespace quintet
