// What a search does next: asynchronous successive halving (Li et al., 2020) on the ladder's first
// model, then the best of each model on the next. A pure function of the file and of what is known
// about trials: the journal is the whole state, and whoever reads it decides the same.
#pragma once

#include <span>

#include "lab/search/search_file.h"
#include "lab/search/trial.h"

namespace quintet {

struct SearchDecision {
  enum class Kind {
    kBegin,     // a trial with these settings, at its first rung
    kContinue,  // trial `trial` goes on to rung `rung`
    kWait,      // nothing, until a running trial has a result
    kDone
  };
  Kind kind = Kind::kDone;
  std::int64_t trial = 0, rung = 0;
  std::int64_t level = 0, parent = 0;
  Settings settings = {};
};

// `threads`: of each rank, where the file does not say.
SearchDecision decide(const SearchFile& search, std::span<const Trial> trials,
                      std::int64_t threads);

// Steps that the search is going to take, about: those it took, and what halving and the ladder
// still want if nothing fails. Of all models together.
double expected_steps(const SearchFile& search, std::span<const Trial> trials,
                      std::int64_t threads);

// Steps that were taken or begun on a level.
std::int64_t steps_begun(std::span<const Trial> trials, std::int64_t level);

}  // namespace quintet
