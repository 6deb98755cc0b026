// The tree-structured Parzen estimator (Bergstra et al., 2011): a density over the good trials and
// one over the others, each a sum of kernels around trials and a flat one; what is likely under the
// first and unlikely under the second is tried. In two ways, which trials take in turns: over whole
// settings (Falkner et al., 2018), which sees what parameters do together, and parameter by
// parameter, which needs fewer trials and gets to the edges of the space.
#pragma once

#include <span>
#include <vector>

#include "base/philox.h"
#include "lab/search/sampler.h"

namespace quintet {

// Observations from the best to the worst: who came further is better than who was stopped before;
// at the same rung the loss counts. Those that could not be finished are last but for those that
// are still running: a constant liar says these will be bad, so that nothing is tried twice at a
// time.
std::vector<std::size_t> order_of(std::span<const TriedSettings> past);

// Over whole settings: candidates drawn from the density of the best sixth, the most promising
// first.
std::vector<Settings> joint_proposals(const SearchSpace& space, std::span<const TriedSettings> past,
                                      PhiloxSequence& random);
// Parameter by parameter: of some values that are likely among the best tenth, the one that is
// least so among the others. Several, in case the first was tried before.
std::vector<Settings> single_proposals(const SearchSpace& space,
                                       std::span<const TriedSettings> past, PhiloxSequence& random);

}  // namespace quintet
