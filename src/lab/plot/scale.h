// Axes: from values to pixels, and where to put ticks so that people can read them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {

struct Tick {
  double value = 0;
  std::string label;  // empty: a line without a word
};

using ValueFormat = std::function<std::string(double)>;

// "0.25", "1.5", "12k", "3.4M": short, without a unit.
std::string short_number(double value);
// Ticks of one axis in one unit: "250 ms", "1.5 s"; bytes in powers of 1024.
std::string short_seconds(double value);
std::string short_bytes(double value);

// Ticks for memory: powers of two, with one between where there are few.
std::vector<Tick> byte_ticks(double low, double high);

class Scale {
 public:
  // Linear scales end at round numbers around the range; logarithmic ones (low > 0) a little beyond
  // it.
  static Scale linear(double low, double high, bool from_zero = false);
  static Scale logarithmic(double low, double high);
  static Scale exactly(double low, double high);  // linear, without rounding

  // Where it is drawn; y axes run from a large pixel to a small one.
  void place(double from, double to) { from_ = from, to_ = to; }
  double operator()(double value) const;

  // About this many, at 1, 2 or 5 times powers of ten.
  std::vector<Tick> ticks(int about, const ValueFormat& format) const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool logarithmic_ = false;
  double low_ = 0, high_ = 1, from_ = 0, to_ = 1;
};

// The width of a text in pixels: an upper estimate, since the reader's font is unknown.
double text_width(std::string_view text, double font_size);
// The beginning of a text with an ellipsis where it is wider than this.
std::string fitted_text(const std::string& text, double font_size, double width);

}  // namespace quintet
