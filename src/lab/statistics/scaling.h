// What more nodes bring: the efficiency of each node count against the smallest, and which line of
// the time breakdown eats what is lost.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lab/statistics/table.h"

namespace quintet {

struct ScalingPoint {
  std::size_t nodes_level = 0;
  double nodes = 0;
  double speed_up = 0;    // work per second against the smallest node count
  double efficiency = 0;  // speed-up over how many times as many nodes
  // Node-seconds that each line of the breakdown takes more for the same work than at the smallest
  // node count, as a share of all node-seconds there. They add up to 1 / efficiency - 1 where the
  // breakdown is whole. Largest first.
  std::vector<std::pair<std::string, double>> lost_to;
};

struct Scaling {
  std::string setting;               // of all other factors
  std::vector<ScalingPoint> points;  // ascending; the first has efficiency 1
};

// For every setting of the other factors that ran on two node counts or more, where the time of a
// step is known. Work is tokens where their rate is known, else steps: then the global batch must
// be the same.
std::vector<Scaling> scaling_of(const Table& table, const std::vector<Cell>& cells,
                                std::size_t nodes_factor);

}  // namespace quintet
