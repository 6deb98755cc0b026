// Charts as data, drawn as SVG without anything from elsewhere: colours are CSS variables of the
// page (report/page.h), so that light, dark and paper are one drawing; every mark has its figures
// in a title, which browsers show and screen readers read.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/plot/scale.h"

namespace quintet {

struct Axis {
  std::string label = {};
  bool logarithmic = false;
  bool from_zero = false;
  ValueFormat format = short_number;
  std::vector<Tick> ticks = {};  // in place of our own
};

struct ChartPoint {
  double x = 0, y = 0;
  double low = std::nan(""), high = std::nan("");  // of an interval, if there is one
  std::string tip;
};

// Points joined by a line, or on their own.
struct Series {
  std::string name;  // in the legend; empty: not there
  std::vector<ChartPoint> points;
  std::size_t colour = 0;
  bool line = true, markers = true;
  bool band = false;   // the interval as an area rather than as bars
  bool faint = false;  // in the background: thin and grey
  bool hollow = false;
};

// A place on the x axis with an interval around it, for crossovers.
struct ChartMark {
  double x = 0, low = 0, high = 0;
  std::string label, tip;
};

// Lines, bands and scatter: x against y.
struct XyChart {
  std::string title;  // says what is seen, for those who cannot see it
  Axis x, y;
  std::vector<Series> series;
  std::vector<ChartMark> marks;
  bool diagonal = false;        // where x = y
  double level = std::nan("");  // a line across, e.g. where a ratio is 1
};

// Horizontal bars, whole or stacked; the words stand on the left, where there is room for them.
struct BarChart {
  struct Bar {
    std::string label = {};
    std::vector<double> parts = {};  // one for each of `parts`
    double low = std::nan(""), high = std::nan("");
    std::string tip = {};
    std::string value = {};  // written at its end
    bool heading = false;    // no bar: a line between groups
  };
  std::string title;
  Axis x;
  std::vector<std::string> parts;  // names in the legend; one: no legend
  std::vector<Bar> bars;
};

// What one rank did when: a row for each of its streams.
struct TimeLine {
  struct Span {
    std::size_t row = 0, kind = 0;
    double begin = 0, end = 0;  // seconds
    std::string tip;
  };
  std::string title;
  std::vector<std::string> rows, kinds;
  std::vector<Span> spans;
};

// `width` in CSS pixels: what is drawn for 360 can be read on a phone, for 860 on a desk.
std::string draw(const XyChart& chart, double width);
std::string draw(const BarChart& chart, double width);
std::string draw(const TimeLine& chart, double width);

inline constexpr std::size_t kColours = 8;  // there are so many; then they begin again

}  // namespace quintet
