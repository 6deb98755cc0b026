// Which settings to try next: a pure function of the seed, the trial's number and what is known so
// far, so that a search that was interrupted goes on as it would have.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/search/space.h"

namespace quintet {

// A trial, as far as it has come.
struct TriedSettings {
  Settings settings;
  std::int64_t rung = -1;  // the highest that it finished; -1: none yet
  double loss = 0;         // there; infinite: it could not be finished, and is worse than any
  std::vector<double> earlier = {};  // losses at the rungs before that one
};

struct SamplerOptions {
  std::string kind = "gp";  // random, sobol, tpe, gp
  std::uint64_t seed = 1;
  // tpe, gp: trials before it models anything, which are Sobol's.
  std::int64_t startup = 10;
};

// The settings of trial `trial` (from 0), others than any before; nothing where that cannot be had:
// a small space that has been tried out.
std::optional<Settings> propose(const SearchSpace& space, const SamplerOptions& options,
                                std::int64_t trial, std::span<const TriedSettings> past);

// What trials are believed to be worth at a rung, the less the better, in no unit; infinite: it
// failed.
struct TrialBeliefs {
  std::int64_t rung = -1;  // none: nothing is believed beyond what was seen
  std::vector<double> values;
};
// Of samplers that model where trials end.
TrialBeliefs believe(const SearchSpace& space, const SamplerOptions& options,
                     std::span<const TriedSettings> past);

}  // namespace quintet
