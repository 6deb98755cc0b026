// How much each parameter matters: the share of the variance of the trials' ranks that its value
// explains by itself.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/search/sampler.h"

namespace quintet {

struct Importance {
  std::string key;
  double share = 0;   // corrected for chance (epsilon squared), not below 0
  double chance = 1;  // how likely as much is found where there is nothing (Fisher's F)
  std::size_t groups = 0;
};

// One-way analysis of variance over ranks, parameter by parameter: trials are grouped by value, or
// into up to five equally large groups of neighbouring values; where a parameter does not count is
// a group of its own. Ranks, so that a trial that diverged is the worst and no more than that. What
// two parameters do only together is in neither share. The most important first; none where there
// are fewer than six trials. All observations must be of the same rung.
std::vector<Importance> importances(const SearchSpace& space,
                                    std::span<const TriedSettings> observations);

}  // namespace quintet
