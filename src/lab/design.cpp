#include "lab/design.h"

#include <algorithm>
#include <random>

namespace quintet {
namespace {

using Levels = std::vector<std::size_t>;

constexpr std::size_t kMostCells = 500000;

// The same everywhere, which std::shuffle is not.
template <class T>
void shuffle(std::vector<T>& items, std::mt19937_64& random) {
  for (std::size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[random() % i]);
  }
}

// How often each level and each pair of levels was taken. A cell costs what it adds to the sum of
// the squares of these counts, so that cheap cells are those that make them even.
class Balance {
 public:
  explicit Balance(const StudyFile& study) {
    for (const DesignFactor& factor : study.factors) sizes_.push_back(factor.levels.size());
    std::size_t at = 0;
    for (std::size_t f = 0; f < sizes_.size(); ++f) {
      for (std::size_t g = f; g < sizes_.size(); ++g) {
        offsets_.push_back(at);
        at += sizes_[f] * sizes_[g];
      }
    }
    counts_.assign(at, 0);
  }
  // Levels by themselves weigh as much as all their pairs.
  std::int64_t cost(const Levels& cell) const {
    std::int64_t sum = 0;
    const auto single = static_cast<std::int64_t>(sizes_.size());
    visit(cell, [&](std::size_t place, bool pair) { sum += counts_[place] * (pair ? 1 : single); });
    return sum;
  }
  void take(const Levels& cell, std::int64_t times) {
    visit(cell, [&](std::size_t place, bool) { counts_[place] += times; });
  }

 private:
  template <class Visit>
  void visit(const Levels& cell, Visit&& one) const {
    std::size_t which = 0;
    for (std::size_t f = 0; f < sizes_.size(); ++f) {
      for (std::size_t g = f; g < sizes_.size(); ++g, ++which) {
        one(offsets_[which] + cell[f] * sizes_[g] + cell[g], f != g);
      }
    }
  }
  std::vector<std::size_t> sizes_, offsets_;
  std::vector<std::int64_t> counts_;
};

// Takes the cell that is cheapest again and again, then exchanges while that helps.
std::vector<Levels> balanced(const StudyFile& study, std::vector<Levels> cells,
                             std::size_t wanted) {
  Balance balance(study);
  std::vector<bool> taken(cells.size());
  const auto cheapest = [&] {
    std::size_t best = cells.size();
    std::int64_t least = 0;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (taken[i]) continue;
      const std::int64_t cost = balance.cost(cells[i]);
      if (best == cells.size() || cost < least) {
        best = i;
        least = cost;
      }
    }
    return best;
  };
  const auto flip = [&](std::size_t i) {
    taken[i] = !taken[i];
    balance.take(cells[i], taken[i] ? 1 : -1);
  };
  for (std::size_t n = 0; n < wanted; ++n) flip(cheapest());
  for (int pass = 0; pass < 3; ++pass) {
    bool better = false;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!taken[i]) continue;
      flip(i);
      const std::size_t best = cheapest();
      const bool exchange = balance.cost(cells[best]) < balance.cost(cells[i]);
      flip(exchange ? best : i);
      better = better || exchange;
    }
    if (!better) break;
  }
  std::vector<Levels> chosen;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (taken[i]) chosen.push_back(cells[i]);
  }
  return chosen;
}

// Whether there is another combination after this one.
bool advance(Levels& cell, const StudyFile& study) {
  for (std::size_t f = cell.size(); f > 0; --f) {
    if (++cell[f - 1] < study.factors[f - 1].levels.size()) return true;
    cell[f - 1] = 0;
  }
  return false;
}

}  // namespace

Result<std::vector<Levels>> cells_of(const StudyFile& study) {
  double combinations = 1;
  for (const DesignFactor& factor : study.factors)
    combinations *= static_cast<double>(factor.levels.size());
  if (combinations > static_cast<double>(kMostCells)) {
    return usage_error(
        "{}: {:.0f} combinations of levels, more than {}: leave out factors or levels",
        study.study.name, combinations, kMostCells);
  }
  std::vector<Levels> cells;
  Levels cell(study.factors.size(), 0);
  do {
    bool kept = true;
    const Settings settings = study.settings_of(cell);
    for (const RowCondition& condition : study.require) {
      QT_ASSIGN(const bool holds, condition.holds(settings));
      kept = kept && holds;
    }
    if (kept) cells.push_back(cell);
  } while (advance(cell, study));
  if (cells.empty()) {
    return usage_error("{}: no combination of levels meets the conditions of [design] require",
                       study.study.name);
  }
  if (study.design.kind == "full") return cells;
  const auto wanted = static_cast<std::size_t>(study.design.cells);
  if (wanted >= cells.size()) return cells;
  std::mt19937_64 random(static_cast<std::uint64_t>(study.design.seed));
  shuffle(cells, random);  // what is equally good is chosen at random
  if (study.design.kind == "fraction") {
    cells = balanced(study, std::move(cells), wanted);
  } else {
    cells.resize(wanted);
  }
  std::sort(cells.begin(), cells.end());
  return cells;
}

Result<std::vector<PlannedRow>> rows_of(const StudyFile& study) {
  QT_ASSIGN(const std::vector<Levels> cells, cells_of(study));
  std::mt19937_64 random(static_cast<std::uint64_t>(study.design.seed) + 1);
  std::vector<PlannedRow> rows;
  if (study.measured) {
    const std::int64_t repeats = study.design.repeats, blocks = study.design.blocks;
    // Either a block holds whole repeats, or a repeat is cut into several blocks.
    const std::int64_t parts = blocks > repeats ? blocks / repeats : 1;
    const std::int64_t whole = repeats > blocks ? repeats / blocks : 1;
    for (std::int64_t first = 0; first < repeats; first += whole) {
      std::vector<PlannedRow> some;
      for (std::int64_t repeat = first; repeat < first + whole; ++repeat) {
        for (std::size_t c = 0; c < cells.size(); ++c) {
          some.push_back({static_cast<std::int64_t>(c), repeat, 0, 0, false, cells[c]});
        }
      }
      shuffle(some, random);
      const auto count = static_cast<std::int64_t>(some.size());
      for (std::int64_t i = 0; i < count; ++i) {
        PlannedRow& row = some[static_cast<std::size_t>(i)];
        row.block = first / whole * parts + i * parts / count;
        rows.push_back(std::move(row));
      }
    }
  }
  for (std::size_t c = 0; study.simulated && c < cells.size(); ++c) {
    rows.push_back({static_cast<std::int64_t>(c), 0, 0, 0, true, cells[c]});
  }
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].position = static_cast<std::int64_t>(i);
  return rows;
}

}  // namespace quintet
