// Expected improvement under a Gaussian process (Jones et al., 1998): of many candidates the one
// that is expected to undercut the best the most, by being probably better or by being unknown.
#pragma once

#include <span>
#include <vector>

#include "base/philox.h"
#include "lab/search/sampler.h"

namespace quintet {

// What trials are worth at one rung, the highest that enough of them have reached, so that they
// can be compared.
struct ComparedTrials {
  std::vector<std::size_t> trials;  // of those given
  // Those of trials that were stopped before are what their own rung lets expect, by a straight
  // line through the trials that have values at both.
  std::vector<double> values;
  std::vector<double> doubts;  // variances that those expectations have
};
// Values far above the median are as bad as twice as far from the best as it is: how bad what is
// bad is does not matter, nor does it for trials that failed. Empty: too few have come anywhere.
ComparedTrials compare_at_one_rung(std::span<const TriedSettings> past, std::size_t enough);

// The most promising first; none: too little is known.
std::vector<Settings> gp_candidates(const SearchSpace& space, std::span<const TriedSettings> past,
                                    PhiloxSequence& random);

}  // namespace quintet
