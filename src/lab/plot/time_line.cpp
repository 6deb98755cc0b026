#include <algorithm>

#include <fmt/format.h>

#include "lab/plot/canvas.h"
#include "lab/plot/chart.h"

namespace quintet {
namespace {

// Neighbours of one kind that lie closer together than can be seen become one.
std::vector<TimeLine::Span> merged(std::vector<TimeLine::Span> spans, double invisible) {
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return a.row != b.row ? a.row < b.row : a.begin < b.begin;
  });
  std::vector<TimeLine::Span> result;
  std::size_t together = 1;
  for (TimeLine::Span& span : spans) {
    if (!result.empty()) {
      TimeLine::Span& last = result.back();
      const bool short_ones = span.end - span.begin < 4 * invisible;
      if (last.row == span.row && last.kind == span.kind && span.begin - last.end < invisible &&
          short_ones && last.end - last.begin < 12 * invisible) {
        last.end = std::max(last.end, span.end);
        ++together;
        last.tip = fmt::format("{} ops", together);
        continue;
      }
    }
    together = 1;
    result.push_back(std::move(span));
  }
  return result;
}

}  // namespace

std::string draw(const TimeLine& chart, double width) {
  constexpr double kRow = 30;
  Canvas canvas(width, 0);
  std::vector<LegendEntry> legend;
  for (std::size_t k = 0; k < chart.kinds.size(); ++k) legend.push_back({chart.kinds[k], k, false});
  const double top = draw_legend(canvas, legend, 4) + 6;
  double widest = 0, end = 0;
  for (const std::string& row : chart.rows) widest = std::max(widest, text_width(row, kFont));
  for (const TimeLine::Span& span : chart.spans) end = std::max(end, span.end);
  const double left = std::min(widest, 0.3 * width) + 10, right = width - 12;
  Scale x = Scale::exactly(0, end > 0 ? end : 1);
  x.place(left, right);
  const double bottom = top + kRow * static_cast<double>(chart.rows.size());
  canvas.set_height(bottom + 46);
  std::vector<Tick> ticks = x.ticks(width < 500 ? 4 : 8, short_seconds);
  drop_crowded_labels(ticks, x, 0, width);
  for (const Tick& tick : ticks) {
    canvas.line(x(tick.value), top, x(tick.value), bottom, "gr");
    if (tick.label.empty()) continue;
    const double half = text_width(tick.label, kFont) / 2;
    canvas.text(std::clamp(x(tick.value), half, width - half), bottom + 16, tick.label, "middle");
  }
  canvas.text((left + right) / 2, bottom + 37, "time since the step began", "middle", "al");
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    const double y = top + kRow * static_cast<double>(r);
    canvas.text(left - 6, y + kRow / 2 + 4, fitted_text(chart.rows[r], kFont, left - 8), "end");
    canvas.line(left, y + kRow, right, y + kRow, "gr");
  }
  const double per_pixel = end / std::max(right - left, 1.0);
  for (const TimeLine::Span& span : merged(chart.spans, per_pixel)) {
    const double y = top + kRow * static_cast<double>(span.row);
    canvas.rectangle(x(span.begin), y + 4, std::max(x(span.end) - x(span.begin), 0.4), kRow - 8,
                     fill_of(span.kind), span.tip);
  }
  canvas.line(left, top, left, bottom, "ax");
  return canvas.finish(chart.title);
}

}  // namespace quintet
