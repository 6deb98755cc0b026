// Tests of randomness. Seeds are fixed, so a test that passes keeps passing.
#pragma once

#include <cmath>
#include <span>

namespace quintet {

// Pearson's statistic for counts against expected counts.
inline double chi_square(std::span<const double> counts, std::span<const double> expected) {
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  }
  return sum;
}

// What the statistic exceeds by chance once in about 30,000 tests (Wilson and Hilferty, 1931).
inline double chi_square_limit(std::size_t categories) {
  const double freedom = static_cast<double>(categories) - 1;
  const double part = 2 / (9 * freedom);
  return freedom * std::pow(1 - part + 4 * std::sqrt(part), 3);
}

}  // namespace quintet
