#include "lab/statistics/distributions.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace quintet {
namespace {

// The continued fraction of I_x(a, b), evaluated by Lentz's method. Converges fast for
// x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300, kPrecise = 1e-15;
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double value = d;
  for (int i = 1; i <= 10000; ++i) {
    const double m = i;
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    value *= d * c;
    if (std::abs(d * c - 1) < kPrecise) break;
  }
  return value;
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
  QT_CHECK(a > 0 && b > 0, "incomplete beta of ({}, {})", a, b);
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_two_sided(double t, double freedom) {
  if (std::isnan(t)) return 1;
  if (std::isinf(t)) return 0;
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double student_limit(double probability, double freedom) {
  double low = 0, high = 1;
  while (student_two_sided(high, freedom) > 1 - probability && high < 1e12) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * high; ++i) {
    const double middle = (low + high) / 2;
    (student_two_sided(middle, freedom) > 1 - probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

double fisher_tail(double f, double freedom_above, double freedom_below) {
  if (!(f > 0)) return 1;
  if (std::isinf(f)) return 0;
  return incomplete_beta(freedom_below / 2, freedom_above / 2,
                         freedom_below / (freedom_below + freedom_above * f));
}

}  // namespace quintet
