#include "lab/statistics/analysis.h"

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
  return analysis;
}

}  // namespace quintet
