#include "generate/next_words.h"

#include <cmath>
#include <vector>

#include "base/philox.h"

namespace quintet {

std::int32_t choose(std::span<const float> log_probabilities, const Choice& choice,
                    std::int64_t row, std::int64_t position) {
  if (choice.temperature == 0) return 0;
  // Temperature first, then what is left of the candidates, as is usual: both orders are in use,
  // and they differ.
  std::vector<double> weights;
  double total = 0;
  for (const float value : log_probabilities) {
    weights.push_back(
        std::exp(static_cast<double>(value - log_probabilities[0]) / choice.temperature));
    total += weights.back();
  }
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < choice.top_p * total))
    kept += weights[count++];
  const double drawn =
      kept * 0x1p-32 *
      philox(choice.seed, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(position))[0];
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += weights[i];
    if (drawn < sum) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(count - 1);
}

}  // namespace quintet
