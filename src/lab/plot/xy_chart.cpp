#include <algorithm>

#include <fmt/format.h>

#include "lab/plot/canvas.h"
#include "lab/plot/chart.h"

namespace quintet {
namespace {

struct Range {
  double low = INFINITY, high = -INFINITY;
  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

Scale scale_for(const Axis& axis, Range range) {
  if (!(range.high >= range.low)) range = {0, 1};
  if (axis.logarithmic && range.low > 0) return Scale::logarithmic(range.low, range.high);
  return Scale::linear(range.low, range.high, axis.from_zero);
}

class XyDrawing {
 public:
  XyDrawing(const XyChart& chart, double width) : chart_(chart), canvas_(width, 0) {}

  std::string draw() {
    lay_out();
    draw_axes();
    draw_marks();
    if (chart_.diagonal) {
      const double low = std::max(x_.low(), y_.low()), high = std::min(x_.high(), y_.high());
      if (high > low) canvas_.line(x_(low), y_(low), x_(high), y_(high), "dg");
    }
    if (std::isfinite(chart_.level)) {
      canvas_.line(left_, y_(chart_.level), right_, y_(chart_.level), "dg");
    }
    for (const bool faint : {true, false}) {
      for (const Series& series : chart_.series) {
        if (series.faint == faint) draw_series(series);
      }
    }
    return canvas_.finish(chart_.title);
  }

 private:
  void lay_out() {
    const bool narrow = canvas_.width() < 500;
    std::vector<LegendEntry> legend;
    for (const Series& series : chart_.series) {
      if (!series.name.empty()) legend.push_back({series.name, series.colour, series.line});
    }
    const double top_of_plot = draw_legend(canvas_, legend, 4) + (chart_.marks.empty() ? 10 : 28);
    const double height = narrow ? 230 : 290;
    top_ = top_of_plot;
    bottom_ = top_ + height;
    canvas_.set_height(bottom_ + 48);

    Range x, y;
    for (const Series& series : chart_.series) {
      for (const ChartPoint& point : series.points) {
        x.include(point.x);
        y.include(point.y);
        // An interval's end at zero has no place on a logarithmic axis.
        if (!series.faint && !(chart_.y.logarithmic && point.low <= 0)) y.include(point.low);
        if (!series.faint) y.include(point.high);
      }
    }
    for (const Tick& tick : chart_.x.ticks) x.include(tick.value);
    y.include(chart_.level);
    if (chart_.diagonal) {
      x.include(y.low), x.include(y.high);
      y = x;
    }
    x_ = scale_for(chart_.x, x);
    y_ = scale_for(chart_.y, y);
    if (!chart_.x.ticks.empty() && !chart_.x.logarithmic) {
      // Named places: a little room on either side, no round numbers.
      const double room = 0.06 * std::max(x.high - x.low, 1e-9);
      x_ = Scale::exactly(x.low - room, x.high + room);
    }
    y_.place(bottom_, top_);
    y_ticks_ = y_.ticks(narrow ? 5 : 6, chart_.y.format);
    if (!chart_.y.ticks.empty()) {
      y_ticks_ = chart_.y.ticks;
      std::erase_if(y_ticks_, [&](const Tick& tick) {
        return tick.value < y_.low() || tick.value > y_.high();
      });
    }
    double widest = 0;
    for (const Tick& tick : y_ticks_) widest = std::max(widest, text_width(tick.label, kFont));
    left_ = widest + 34;
    right_ = canvas_.width() - 10;
    x_.place(left_, right_);
  }

  void draw_axes() {
    for (const Tick& tick : y_ticks_) {
      const double y = y_(tick.value);
      canvas_.line(left_, y, right_, y, "gr");
      canvas_.text(left_ - 8, y + 4, tick.label, "end");
    }
    std::vector<Tick> ticks = chart_.x.ticks;
    if (ticks.empty()) ticks = x_.ticks(canvas_.width() < 500 ? 4 : 7, chart_.x.format);
    drop_crowded_labels(ticks, x_, 0, canvas_.width());
    for (const Tick& tick : ticks) {
      const double x = x_(tick.value);
      canvas_.line(x, bottom_, x, bottom_ + 5, "ax");
      if (tick.label.empty()) continue;
      const double half = text_width(tick.label, kFont) / 2;
      canvas_.text(std::clamp(x, half, canvas_.width() - half), bottom_ + 19, tick.label, "middle");
    }
    canvas_.line(left_, bottom_, right_, bottom_, "ax");
    canvas_.text((left_ + right_) / 2, bottom_ + 40, chart_.x.label, "middle", "al");
    canvas_.vertical_text(13, (top_ + bottom_) / 2, chart_.y.label);
  }

  void draw_marks() {
    for (const ChartMark& mark : chart_.marks) {
      const double x = x_(mark.x), from = x_(mark.low), to = x_(mark.high);
      canvas_.rectangle(from, top_, to - from, bottom_ - top_, "iv", mark.tip);
      canvas_.line(x, top_, x, bottom_, "mk");
      const double half = text_width(mark.label, kFont) / 2;
      canvas_.text(std::clamp(x, left_ + half, right_ - half), top_ - 8, mark.label, "middle",
                   "al");
    }
  }

  void draw_series(const Series& series) {
    const std::string stroke = series.faint ? "sg" : stroke_of(series.colour);
    if (series.band) draw_band(series);
    if (series.line) {
      std::string d;
      for (const ChartPoint& point : series.points) {
        if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
        d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x_(point.x), y_(point.y));
      }
      if (!d.empty())
        canvas_.path(d, (series.faint ? "lt " : "ln ") + stroke,
                     series.faint ? series.points.front().tip : "");
    }
    for (const ChartPoint& point : series.points) {
      if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
      const double x = x_(point.x), y = y_(point.y);
      if (!series.band && !series.faint && point.low <= point.high) {
        canvas_.line(x, inside(point.low), x, inside(point.high), "eb " + stroke);
      }
      if (!series.markers) continue;
      const std::string css = series.faint    ? "fg"
                              : series.hollow ? "ho " + stroke
                                              : fill_of(series.colour);
      canvas_.marker(x, y, series.colour, css + " pt", point.tip);
    }
  }

  // Where an interval ends, or the plot where the interval has no end that can be shown.
  double inside(double value) const { return std::fmax(top_, std::fmin(bottom_, y_(value))); }

  void draw_band(const Series& series) {
    std::string d;
    for (const ChartPoint& point : series.points) {
      if (!(point.low <= point.high)) return;
      d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x_(point.x), inside(point.high));
    }
    for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
      d += fmt::format("L{:.1f} {:.1f}", x_(point->x), inside(point->low));
    }
    if (!d.empty()) canvas_.path(d + "z", "bd " + fill_of(series.colour));
  }

  const XyChart& chart_;
  Canvas canvas_;
  Scale x_, y_;
  std::vector<Tick> y_ticks_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
};

}  // namespace

std::string draw(const XyChart& chart, double width) {
  return XyDrawing(chart, width).draw();
}

}  // namespace quintet
