// Pieces that all charts share: SVG elements, axes, legends. Not for users of the charts.
#pragma once

#include <string>
#include <vector>

#include "lab/plot/chart.h"

namespace quintet {

inline constexpr double kFont = 12;  // of all words in charts

class Canvas {
 public:
  Canvas(double width, double height) : width_(width), height_(height) {}

  void line(double x1, double y1, double x2, double y2, const std::string& css);
  // `anchor`: "start", "middle" or "end".
  void text(double x, double y, const std::string& words, const char* anchor,
            const std::string& css = "");
  void vertical_text(double x, double y, const std::string& words);
  void rectangle(double x, double y, double width, double height, const std::string& css,
                 const std::string& tip = "");
  void path(const std::string& commands, const std::string& css, const std::string& tip = "");
  // One of several shapes, so that series can be told apart without colour.
  void marker(double x, double y, std::size_t shape, const std::string& css,
              const std::string& tip = "");

  double width() const { return width_; }
  double height() const { return height_; }
  void set_height(double height) { height_ = height; }
  std::string finish(const std::string& title) const;

 private:
  double width_, height_;
  std::string body_;
};

// CSS classes of a series' colour.
std::string stroke_of(std::size_t colour);
std::string fill_of(std::size_t colour);

struct LegendEntry {
  std::string name;
  std::size_t colour = 0;
  bool line = false;  // a line with its marker rather than a square
};
// From the top of the canvas, in as many lines as it takes; returns where it ends.
double draw_legend(Canvas& canvas, const std::vector<LegendEntry>& entries, double left);

// Labels that would run into their neighbours are left out: the first and the last stay.
void drop_crowded_labels(std::vector<Tick>& ticks, const Scale& scale, double left, double right);

}  // namespace quintet
