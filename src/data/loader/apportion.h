// Divides places among claimants by weight.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace quintet {

// One place for each, the rest in proportion, the last ones to the largest remainders. There are at
// least as many places as weights.
inline std::vector<std::uint64_t> apportion(std::uint64_t places, std::span<const double> weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto free = static_cast<double>(places - weights.size());
  std::vector<std::uint64_t> counts;
  std::vector<std::pair<double, std::size_t>> remainders;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double part = weights[i] / total * free;
    counts.push_back(1 + static_cast<std::uint64_t>(part));
    remainders.emplace_back(std::floor(part) - part, i);
  }
  std::sort(remainders.begin(), remainders.end());
  std::uint64_t used = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  for (std::size_t i = 0; used < places; ++i, ++used) ++counts[remainders[i].second];
  return counts;
}

}  // namespace quintet
