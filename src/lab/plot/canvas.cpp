#include "lab/plot/canvas.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <fmt/format.h>

#include "lab/plot/markup.h"

namespace quintet {
namespace {

std::string title_element(const std::string& tip) {
  return tip.empty() ? "/>" : fmt::format("><title>{}</title>", escape_markup(tip));
}

std::string closing(const std::string& tip, const char* name) {
  return tip.empty() ? "\n" : fmt::format("</{}>\n", name);
}

// What overflows has no place, and browsers take nothing but numbers.
bool has_place(std::initializer_list<double> at) {
  return std::all_of(at.begin(), at.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

void Canvas::line(double x1, double y1, double x2, double y2, const std::string& css) {
  if (!has_place({x1, y1, x2, y2})) return;
  body_ +=
      fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                  css, x1, y1, x2, y2);
}

void Canvas::text(double x, double y, const std::string& words, const char* anchor,
                  const std::string& css) {
  if (!has_place({x, y})) return;
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                  css.empty() ? "" : fmt::format(" class=\"{}\"", css), escape_markup(words));
}

void Canvas::vertical_text(double x, double y, const std::string& words) {
  body_ += fmt::format(
      "<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 {0:.1f} "
      "{1:.1f})\">{2}</text>\n",
      x, y, escape_markup(words));
}

void Canvas::rectangle(double x, double y, double width, double height, const std::string& css,
                       const std::string& tip) {
  if (!has_place({x, y, width, height})) return;
  body_ += fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"{}{}", css, x,
      y, std::max(width, 0.0), height, title_element(tip), closing(tip, "rect"));
}

void Canvas::path(const std::string& commands, const std::string& css, const std::string& tip) {
  body_ += fmt::format("<path class=\"{}\" d=\"{}\"{}{}", css, commands, title_element(tip),
                       closing(tip, "path"));
}

void Canvas::marker(double x, double y, std::size_t shape, const std::string& css,
                    const std::string& tip) {
  if (!has_place({x, y})) return;
  constexpr double r = 4;
  std::string d;
  switch (shape % 4) {
    case 0:
      d = fmt::format("M{:.1f} {:.1f}a{r} {r} 0 1 0 {t} 0a{r} {r} 0 1 0 -{t} 0z", x - r, y,
                      fmt::arg("r", r), fmt::arg("t", 2 * r));
      break;
    case 1:
      d = fmt::format("M{:.1f} {:.1f}h7v7h-7z", x - 3.5, y - 3.5);
      break;
    case 2:
      d = fmt::format("M{:.1f} {:.1f}l4.6 8h-9.2z", x, y - 5);
      break;
    default:
      d = fmt::format("M{:.1f} {:.1f}l5 5l-5 5l-5 -5z", x, y - 5);
  }
  path(d, css, tip);
}

std::string Canvas::finish(const std::string& title) const {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n{}</svg>\n",
      width_, height_, width_, height_, escape_markup(title), body_);
}

std::string stroke_of(std::size_t colour) {
  return fmt::format("s{}", colour % kColours);
}

std::string fill_of(std::size_t colour) {
  return fmt::format("f{}", colour % kColours);
}

double draw_legend(Canvas& canvas, const std::vector<LegendEntry>& entries, double left) {
  constexpr double kRow = 20, kGap = 16;
  double x = left, y = 14;
  for (const LegendEntry& entry : entries) {
    const double key = entry.line ? 26 : 16;
    const std::string name = fitted_text(entry.name, kFont, canvas.width() - left - key - 4);
    const double needed = key + text_width(name, kFont);
    if (x > left && x + needed > canvas.width()) {
      x = left;
      y += kRow;
    }
    if (entry.line) {
      canvas.line(x, y - 4, x + 20, y - 4, "ln " + stroke_of(entry.colour));
      canvas.marker(x + 10, y - 4, entry.colour, fill_of(entry.colour));
    } else {
      canvas.rectangle(x, y - 10, 11, 11, fill_of(entry.colour));
    }
    canvas.text(x + key, y, name, "start");
    x += needed + kGap;
  }
  return entries.empty() ? 4 : y + 10;
}

void drop_crowded_labels(std::vector<Tick>& ticks, const Scale& scale, double left, double right) {
  struct Extent {
    double from, to;
  };
  std::vector<Extent> taken;
  const auto place = [&](Tick& tick) {
    if (tick.label.empty()) return;
    const double half = text_width(tick.label, kFont) / 2 + 4;
    const double at = std::clamp(scale(tick.value), left + half - 4, right - half + 4);
    const bool free = std::none_of(taken.begin(), taken.end(), [&](const Extent& other) {
      return at - half < other.to && at + half > other.from;
    });
    if (free) {
      taken.push_back({at - half, at + half});
    } else {
      tick.label.clear();
    }
  };
  if (ticks.empty()) return;
  place(ticks.front());
  place(ticks.back());
  for (std::size_t i = 1; i + 1 < ticks.size(); ++i) place(ticks[i]);
}

}  // namespace quintet
