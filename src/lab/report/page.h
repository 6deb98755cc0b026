// One HTML file that needs nothing else: text, tables that can be sorted, charts. Reads well on a
// phone, in the dark and on paper, and without its small script.
#pragma once

#include <string>
#include <vector>

#include "lab/plot/chart.h"

namespace quintet {

struct PageCell {
  std::string text;
  double value = std::nan("");  // what numeric columns are sorted by
  bool code = false;            // a command: in its own type
};

struct PageTable {
  struct Column {
    std::string name;
    bool numeric = false;
  };
  std::vector<Column> columns;
  std::vector<std::vector<PageCell>> rows;
};

// All texts are taken as they are: what they contain is never markup.
class Page {
 public:
  Page(std::string title, std::string subtitle);

  void section(const std::string& heading);
  void subsection(const std::string& heading);
  void paragraph(const std::string& text);
  void answer(const std::vector<std::string>& sentences);
  void list(const std::vector<std::string>& items);
  void code(const std::string& text);
  // Small facts side by side: name and value.
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  // `folded`: a heading that opens it; for what is long.
  void table(const PageTable& table, const std::string& folded = "");

  // Drawn twice, for narrow and for wide screens; the page shows the one that fits.
  template <class Chart>
  void figure(const std::string& heading, const std::string& caption, const Chart& chart) {
    figure_of(heading, caption, draw(chart, kNarrow), draw(chart, kWide));
  }

  std::string finish() const;

 private:
  static constexpr double kNarrow = 340, kWide = 860;
  void figure_of(const std::string& heading, const std::string& caption, const std::string& narrow,
                 const std::string& wide);

  std::string title_, subtitle_, body_;
};

// The style sheet and the script of all pages.
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace quintet
