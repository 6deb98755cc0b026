#include "lab/statistics/analysis.h"

#include "base/text.h"
#include "lab/statistics/distributions.h"

namespace quintet {
namespace {

constexpr std::size_t kMostColumns = 2000;

Status check_size(const Table& table, const std::string& origin) {
  const std::size_t columns = LinearModel::columns(table, table.factors.size() > 1);
  if (columns <= kMostColumns) return {};
  return usage_error(
      "{}: the factors have so many levels that {} effects would have to be told apart (at most {} "
      "can be); take fewer factors, or some rows only (--where NAME=LEVEL)",
      origin, columns, kMostColumns);
}

// A cell's mean with an interval from the noise that all cells share.
std::vector<Estimate> means_of(const std::vector<Cell>& cells, const Noise& noise) {
  std::vector<Estimate> means;
  for (const Cell& cell : cells) {
    Estimate mean;
    mean.factor = cell.response;
    if (noise.freedom > 0) {
      const double half = student_limit(0.95, noise.freedom) *
                          std::sqrt(noise.variance / static_cast<double>(cell.count));
      mean.low = cell.response * std::exp(-half);
      mean.high = cell.response * std::exp(half);
    }
    means.push_back(mean);
  }
  return means;
}

// "3 rows without memory left out of time against memory (zero 3, tp 2; ...)".
void note_left_out(const Table& table, const std::vector<Cell>& cells, const char* why,
                   std::vector<std::string>& notes) {
  constexpr std::size_t kNamed = 3;
  std::size_t rows = 0;
  std::vector<std::string> names;
  for (const Cell& cell : cells) {
    rows += cell.count;
    if (names.size() < kNamed) names.push_back(table.describe(cell.level, table.all_factors()));
  }
  if (rows == 0) return;
  notes.push_back(fmt::format("{} row{} {} ({}{})", rows, rows == 1 ? "" : "s", why,
                              join(names, "; "), cells.size() > kNamed ? "; ..." : ""));
}

// Where some settings only can be compared, the best of all may be missing.
void note_gaps(Analysis& analysis) {
  std::vector<Cell> gaps;
  if (!analysis.tradeoffs.empty()) {
    for (const Cell& cell : analysis.cells) {
      if (std::isnan(cell.memory_bytes)) gaps.push_back(cell);
    }
    note_left_out(analysis.table, gaps, "without memory left out of time against memory",
                  analysis.notes);
  }
  const auto& predicted = analysis.prediction.cells;
  if (predicted.empty()) return;
  gaps.clear();
  std::size_t next = 0;  // both are in the order of levels
  for (const Cell& cell : cells_of(analysis.compared)) {
    if (next < predicted.size() && predicted[next].level == cell.level) {
      ++next;
    } else {
      gaps.push_back(cell);
    }
  }
  note_left_out(analysis.compared, gaps,
                "without a prediction left out of predictions against measurements",
                analysis.notes);
}

}  // namespace

Result<Analysis> analyse(Table measured, Table simulated, const std::string& origin) {
  Analysis analysis;
  analysis.prediction = compare_prediction(measured, simulated);
  analysis.compared = measured;
  analysis.simulated = measured.rows.empty();
  analysis.table = std::move(analysis.simulated ? simulated : measured);
  Table& table = analysis.table;
  if (table.rows.empty()) return bad_input("{}: there are no rows to analyse", origin);
  analysis.constant_factors = drop_constant_factors(table);
  analysis.cells = cells_of(table);
  if (table.factors.empty()) {
    return bad_input("{}: every factor has one level only: there is nothing to compare", origin);
  }
  QT_TRY(check_size(table, origin));
  const LinearModel model = fit_model(table);
  analysis.effects = effects_of(table, model);
  analysis.crossovers = crossovers_of(table, model);
  const Noise& repeats = model.repeats();
  analysis.cell_means = means_of(analysis.cells, repeats.freedom > 0 ? repeats : model.noise());
  analysis.tradeoffs = tradeoffs_of(table, analysis.cells);
  analysis.dominated = dominated_layouts(table, analysis.cells, analysis.tradeoffs);
  if (const auto nodes = table.find("nodes")) {
    analysis.scalings = scaling_of(table, analysis.cells, *nodes);
  }
  note_gaps(analysis);
  return analysis;
}

}  // namespace quintet
