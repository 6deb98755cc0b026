// Time against memory: which layouts are worth having, and which nobody should use because another
// is better in both.
#pragma once

#include <vector>

#include "lab/statistics/table.h"

namespace quintet {

struct TradeoffPoint {
  std::size_t cell = 0;  // in cells_of(table)
  // A cell of the same environment that takes no more of either and less of one; none: on the
  // front.
  std::optional<std::size_t> beaten_by;
};

struct Tradeoff {
  std::string environment;            // "nodes 4, bandwidth 1gbit"; empty where there is one only
  std::vector<TradeoffPoint> points;  // by time
};

// For each environment; cells whose time or memory is unknown are left out.
std::vector<Tradeoff> tradeoffs_of(const Table& table, const std::vector<Cell>& cells);

// Layouts (settings of the factors that are not environment) that are beaten wherever they ran, in
// two environments at least or in the only one.
struct DominatedLayout {
  std::string layout;
  std::string by;  // the layout that beats it most often
  std::size_t environments = 0;
};
std::vector<DominatedLayout> dominated_layouts(const Table& table, const std::vector<Cell>& cells,
                                               const std::vector<Tradeoff>& tradeoffs);

}  // namespace quintet
