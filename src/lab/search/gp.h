// Expected improvement under a Gaussian process (Jones et al., 1998): of many candidates the one
// that is expected to undercut the best the most, by being probably better or by being unknown.
// What trials were worth at earlier rungs counts as far as it tells about the end (Kennedy and
// O'Hagan, 2000; here with one kernel for all rungs): how far that is, the trials that have been at
// both say.
#pragma once

#include <span>
#include <vector>

#include "base/philox.h"
#include "lab/search/sampler.h"

namespace quintet {

// What trials were worth at the rungs up to the highest that enough of them have reached, each in
// units of that one: the trials that have been there have the same mean and the same deviation
// everywhere. Values far above the median are as bad as twice as far from the best as it is: how
// bad what is bad is does not matter, nor does it for trials that failed.
struct ValuesByRung {
  struct Row {
    std::size_t trial;   // of those given
    std::int64_t below;  // so many rungs below the highest
    double value;
  };
  std::int64_t rung = -1;  // the highest; none: too few have come anywhere
  std::vector<Row> rows;   // trial by trial, a trial's last rung first
};
ValuesByRung values_by_rung(std::span<const TriedSettings> past, std::size_t enough);

// The most promising first; none: too little is known.
std::vector<Settings> gp_candidates(const SearchSpace& space, std::span<const TriedSettings> past,
                                    PhiloxSequence& random);
TrialBeliefs gp_beliefs(const SearchSpace& space, std::span<const TriedSettings> past,
                        PhiloxSequence& random);

}  // namespace quintet
