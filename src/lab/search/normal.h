// The normal distribution, as samplers need it.
#pragma once

#include <cmath>

namespace quintet {

inline double normal_density(double x) {
  constexpr double kRootOfTwoPi = 2.5066282746310002;
  return std::exp(-x * x / 2) / kRootOfTwoPi;
}

// How likely it is to be below x.
inline double normal_below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// The inverse of normal_below by bisection: no table to get wrong, and nothing here is hot.
inline double normal_quantile(double probability) {
  double low = -9, high = 9;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (normal_below(middle) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace quintet
