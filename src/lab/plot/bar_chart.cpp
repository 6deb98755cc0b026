#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "lab/plot/canvas.h"
#include "lab/plot/chart.h"

namespace quintet {

std::string draw(const BarChart& chart, double width) {
  const bool narrow = width < 500;
  const double row = 24, label_row = narrow ? 16 : 0;  // on a phone words stand above their bars
  Canvas canvas(width, 0);
  std::vector<LegendEntry> legend;
  for (std::size_t p = 0; chart.parts.size() > 1 && p < chart.parts.size(); ++p) {
    legend.push_back({chart.parts[p], p, false});
  }
  const double top = draw_legend(canvas, legend, 4) + 6;

  double most = 0, widest_label = 0, widest_value = 0;
  for (const BarChart::Bar& bar : chart.bars) {
    const double sum = std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0);
    most = std::max({most, sum, std::isfinite(bar.high) ? bar.high : 0});
    if (!bar.heading) widest_label = std::max(widest_label, text_width(bar.label, kFont));
    widest_value = std::max(widest_value, text_width(bar.value, kFont));
  }
  const double left = narrow ? 4 : std::min(widest_label, 0.42 * width) + 12;
  const double right = width - widest_value - 12;
  Scale x = Scale::linear(0, most, true);
  x.place(left, right);

  double y = top;
  std::vector<double> tops;
  for (const BarChart::Bar& bar : chart.bars) {
    y += bar.heading && y > top ? 10 : 0;
    tops.push_back(y);
    y += bar.heading ? row : row + label_row;
  }
  const double bottom = y + 4;
  canvas.set_height(bottom + 46);
  std::vector<Tick> ticks = chart.x.ticks;
  if (ticks.empty()) ticks = x.ticks(narrow ? 4 : 7, chart.x.format);
  std::erase_if(ticks, [&](const Tick& tick) { return tick.value > x.high(); });
  drop_crowded_labels(ticks, x, 0, width);
  for (const Tick& tick : ticks) {
    canvas.line(x(tick.value), top, x(tick.value), bottom, "gr");
    if (tick.label.empty()) continue;
    const double half = text_width(tick.label, kFont) / 2;
    canvas.text(std::clamp(x(tick.value), half, width - half), bottom + 16, tick.label, "middle");
  }
  canvas.text((left + right) / 2, bottom + 37, chart.x.label, "middle", "al");
  for (std::size_t b = 0; b < chart.bars.size(); ++b) {
    const BarChart::Bar& bar = chart.bars[b];
    const double above = tops[b] + (bar.heading ? 0 : label_row);
    if (bar.heading) {
      canvas.text(4, above + 16, fitted_text(bar.label, kFont + 1, width - 8), "start", "hd");
      continue;
    }
    if (narrow) {
      canvas.text(left, above - 1, fitted_text(bar.label, kFont, width - left), "start");
    } else {
      canvas.text(left - 8, above + 16, fitted_text(bar.label, kFont, left - 12), "end");
    }
    double from = 0;
    for (std::size_t p = 0; p < bar.parts.size(); ++p) {
      if (!(bar.parts[p] > 0)) continue;
      canvas.rectangle(x(from), above + 3, x(from + bar.parts[p]) - x(from), row - 7,
                       fill_of(p) + (chart.parts.size() > 1 ? " st" : ""),
                       chart.parts.size() > 1 ? fmt::format("{}: {} {}", bar.label, chart.parts[p],
                                                            chart.x.format(bar.parts[p]))
                                              : bar.tip);
      from += bar.parts[p];
    }
    const double middle = above + 3 + (row - 7) / 2;
    double end = x(from);
    if (std::isfinite(bar.low) && std::isfinite(bar.high)) {
      canvas.line(x(bar.low), middle, x(bar.high), middle, "eb ink");
      canvas.line(x(bar.low), middle - 4, x(bar.low), middle + 4, "eb ink");
      canvas.line(x(bar.high), middle - 4, x(bar.high), middle + 4, "eb ink");
      end = std::max(end, x(bar.high));
    }
    if (!bar.value.empty()) canvas.text(end + 6, middle + 4, bar.value, "start");
  }
  canvas.line(left, top, left, bottom, "ax");
  return canvas.finish(chart.title);
}

}  // namespace quintet
