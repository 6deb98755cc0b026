// Tables with known effects, for tests of the statistics.
#pragma once

#include <cmath>
#include <functional>
#include <numbers>

#include "base/philox.h"
#include "lab/statistics/table.h"

namespace quintet::testing {

// Standard normal numbers (Box and Muller).
class NormalNumbers {
 public:
  explicit NormalNumbers(std::uint64_t seed) : random_(seed, 99) {}
  double next() {
    const double radius = std::sqrt(-2 * std::log(1 - random_.uniform()));
    return radius * std::cos(2 * std::numbers::pi * random_.uniform());
  }

 private:
  PhiloxSequence random_;
};

inline Factor factor(const std::string& name, const std::vector<std::string>& levels,
                     bool numeric = false) {
  return make_factor(name, levels, numeric).value();
}

// Every setting once in each block; `log_response` of a setting's levels, plus the block's shift
// and noise.
inline Table made_up(const std::vector<Factor>& factors, std::size_t blocks,
                     const std::function<double(const std::vector<std::size_t>&)>& log_response,
                     const std::function<double()>& noise) {
  Table table;
  table.response = table.time = "seconds";
  table.factors = factors;
  table.blocks = blocks;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::vector<std::size_t> level(factors.size(), 0);
    while (true) {
      Observation row;
      row.level = level;
      row.block = block;
      row.response = row.seconds =
          std::exp(log_response(level) + 0.05 * static_cast<double>(block) + noise());
      table.rows.push_back(row);
      std::size_t f = 0;
      while (f < level.size() && ++level[f] == factors[f].levels.size()) level[f++] = 0;
      if (f == level.size()) break;
    }
  }
  return table;
}

}  // namespace quintet::testing
