// How the next word of a row is chosen among the best candidates.
#pragma once

#include <cstdint>
#include <span>

namespace quintet {

struct Choice {
  double temperature = 0;  // 0: the best word, always
  double top_p = 1;        // of the candidates, the fewest that together have this probability
  std::uint64_t seed = 0;
};

// The index of one candidate. `log_probabilities`: the candidates', largest first. With a
// temperature the choice is drawn, by a number that depends on the seed, the row and the position
// alone: a batch gives the same as its rows one by one.
std::int32_t choose(std::span<const float> log_probabilities, const Choice& choice,
                    std::int64_t row, std::int64_t position);

}  // namespace quintet
