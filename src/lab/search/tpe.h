// The tree-structured Parzen estimator (Bergstra et al., 2011) over whole settings at once (Falkner
// et al., 2018): a density over the good trials and one over the others, each a sum of kernels
// around trials and one flat kernel; what is likely under the first and unlikely under the second
// is tried.
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

// Of so many finished observations the best are these many.
std::size_t good_count(std::size_t finished);

// Candidates drawn from the density of the good, the most promising first.
std::vector<Settings> tpe_candidates(const SearchSpace& space, std::span<const TriedSettings> past,
                                     PhiloxSequence& random);

}  // namespace quintet
