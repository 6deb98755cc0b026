#include "lab/statistics/crossover.h"

#include <algorithm>
#include <utility>

#include "lab/statistics/distributions.h"

namespace quintet {
namespace {

constexpr std::uint64_t kCrossoverSeed = 20240602;
constexpr int kStepsBetweenLevels = 200;

// The difference of two levels, known at some points of the numeric factor, and in between.
class Difference {
 public:
  Difference(std::vector<double> x, Eigen::VectorXd values, Eigen::MatrixXd covariance)
      : x_(std::move(x)), values_(std::move(values)), covariance_(std::move(covariance)) {}

  std::size_t size() const { return x_.size(); }
  double x(std::size_t i) const { return x_[i]; }
  double at_level(std::size_t i) const { return values_(static_cast<Eigen::Index>(i)); }

  // Weights of the levels' values at a point of segment s (from x(s) to x(s + 1)): on a line
  // between its ends, or on the polynomial through up to two levels on either side.
  Eigen::VectorXd weights(std::size_t s, double x, bool curved) const {
    std::size_t first = s, last = s + 1;
    if (curved) {
      first = s == 0 ? 0 : s - 1;
      last = std::min(s + 2, size() - 1);
    }
    Eigen::VectorXd result = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(size()));
    for (std::size_t i = first; i <= last; ++i) {
      double weight = 1;
      for (std::size_t j = first; j <= last; ++j) {
        if (j != i) weight *= (x - x_[j]) / (x_[i] - x_[j]);
      }
      result(static_cast<Eigen::Index>(i)) = weight;
    }
    return result;
  }
  double value(std::size_t s, double x, bool curved) const {
    return weights(s, x, curved).dot(values_);
  }
  // Whether a difference of zero at this point is within `limit` standard errors of what was seen.
  bool may_be_zero(std::size_t s, double x, bool curved, double limit) const {
    const Eigen::VectorXd w = weights(s, x, curved);
    const double value = w.dot(values_);
    return std::abs(value) <= kSame ||
           value * value <= limit * limit * std::max(w.dot(covariance_ * w), 0.0);
  }

  // Its value and half the width of its band.
  std::pair<double, double> band(std::size_t s, double x, double limit) const {
    const Eigen::VectorXd w = weights(s, x, size() > 2);
    return {w.dot(values_), limit * std::sqrt(std::max(w.dot(covariance_ * w), 0.0))};
  }

  // Where it changes sign in segment s.
  double root(std::size_t s, bool curved) const {
    double low = x_[s], high = x_[s + 1];
    const bool rises = at_level(s) < at_level(s + 1);
    for (int i = 0; i < 100; ++i) {
      const double middle = (low + high) / 2;
      ((value(s, middle, curved) < 0) == rises ? low : high) = middle;
    }
    return (low + high) / 2;
  }

  // From a root outward: the first point, in one direction, at which zero is ruled out; false if
  // there is none in the range.
  bool ruled_out_from(std::size_t s, double root, bool curved, double limit, bool upward,
                      double& edge) const {
    const auto outside = [&](std::size_t segment, double x) {
      return !may_be_zero(segment, x, curved, limit);
    };
    double inside = root;
    for (std::size_t segment = s;;) {
      const double end = upward ? x_[segment + 1] : x_[segment];
      const double from = inside;
      for (int i = 1; i <= kStepsBetweenLevels; ++i) {
        double probe = from + (end - from) * i / kStepsBetweenLevels;
        if (!outside(segment, probe)) {
          inside = probe;
          continue;
        }
        for (int j = 0; j < 60; ++j) {  // between `inside` and `probe`
          const double middle = (inside + probe) / 2;
          (outside(segment, middle) ? probe : inside) = middle;
        }
        edge = inside;
        return true;
      }
      inside = end;
      if (upward ? segment + 2 >= size() : segment == 0) break;
      upward ? ++segment : --segment;
    }
    edge = inside;
    return false;
  }

 private:
  std::vector<double> x_;
  Eigen::VectorXd values_;
  Eigen::MatrixXd covariance_;
};

// Between level `below` and level `above`, where the signs differ; at the levels in between, if
// there are any, there is no difference.
Crossing crossing_between(const Difference& difference, std::size_t below, std::size_t above,
                          double limit) {
  const bool can_curve = difference.size() > 2, ties = above - below > 1;
  Crossing crossing;
  crossing.at = ties ? (difference.x(below + 1) + difference.x(above - 1)) / 2
                     : difference.root(below, can_curve);
  crossing.low = crossing.high = crossing.at;
  crossing.first_wins_below = difference.at_level(above) < 0;
  for (const bool curved : {false, true}) {
    if (curved && !can_curve) continue;
    const double root = ties ? crossing.at : difference.root(below, curved);
    double edge = ties ? difference.x(below + 1) : root;
    if (!difference.ruled_out_from(below, edge, curved, limit, false, edge))
      crossing.open_low = true;
    crossing.low = std::min(crossing.low, edge);
    edge = ties ? difference.x(above - 1) : root;
    if (!difference.ruled_out_from(above - 1, edge, curved, limit, true, edge))
      crossing.open_high = true;
    crossing.high = std::max(crossing.high, edge);
  }
  return crossing;
}

std::vector<CurvePoint> curve_of(const Difference& difference, bool logarithmic, double limit) {
  constexpr int kPoints = 12;  // between two levels
  std::vector<CurvePoint> curve;
  for (std::size_t s = 0; s + 1 < difference.size(); ++s) {
    const double from = difference.x(s), step = (difference.x(s + 1) - from) / kPoints;
    for (int i = s == 0 ? 0 : 1; i <= kPoints; ++i) {
      const double x = from + step * i;
      const auto [value, half] = difference.band(s, x, limit);
      curve.push_back({logarithmic ? std::exp(x) : x, std::exp(value), std::exp(value - half),
                       std::exp(value + half)});
    }
  }
  return curve;
}

// The levels of `along` at which two levels of a factor can be compared, and how.
struct Comparison {
  Crossover crossover;
  std::vector<Eigen::VectorXd> contrasts;
};

std::vector<Comparison> comparisons(const Table& table, const LinearModel& model) {
  std::vector<Comparison> all;
  for (std::size_t along = 0; along < table.factors.size(); ++along) {
    if (!table.factors[along].numeric) continue;
    for (std::size_t f = 0; f < table.factors.size(); ++f) {
      if (f == along) continue;
      for (std::size_t a = 0; a < table.factors[f].levels.size(); ++a) {
        for (std::size_t b = a + 1; b < table.factors[f].levels.size(); ++b) {
          Comparison one;
          one.crossover = {.along = along,
                           .factor = f,
                           .first = a,
                           .second = b,
                           .along_levels = {},
                           .ratios = {},
                           .crossings = {},
                           .curve = {}};
          for (std::size_t x = 0; x < table.factors[along].levels.size(); ++x) {
            Eigen::VectorXd contrast = compare_levels(table, model, f, b, a, At{along, x});
            if (contrast.size() == 0 || !model.estimable(contrast)) continue;
            one.crossover.along_levels.push_back(x);
            one.contrasts.push_back(std::move(contrast));
          }
          if (one.contrasts.size() >= 2) all.push_back(std::move(one));
        }
      }
    }
  }
  return all;
}

}  // namespace

bool Crossover::the_same() const {
  return std::all_of(ratios.begin(), ratios.end(), [](const Estimate& ratio) {
    return std::abs(std::log(ratio.factor)) <= kSame;
  });
}

bool Crossover::first_wins() const {
  const auto differs = std::find_if(ratios.begin(), ratios.end(), [](const Estimate& ratio) {
    return std::abs(std::log(ratio.factor)) > kSame;
  });
  return differs != ratios.end() && differs->factor > 1;
}

bool Crossover::clear_throughout() const {
  return std::all_of(ratios.begin(), ratios.end(), [](const Estimate& ratio) {
    return ratio.has_interval() && (ratio.low > 1 || ratio.high < 1);
  });
}

std::vector<Crossover> crossovers_of(const Table& table, const LinearModel& model) {
  // Without interactions the difference is the same everywhere by construction.
  const bool pairs = std::any_of(model.terms().begin(), model.terms().end(),
                                 [](const Term& term) { return term.factors.size() == 2; });
  if (!pairs) return {};
  auto all = comparisons(table, model);
  std::vector<Eigen::VectorXd> contrasts;
  for (const Comparison& one : all) {
    contrasts.insert(contrasts.end(), one.contrasts.begin(), one.contrasts.end());
  }
  const auto limits = model.bootstrap_limits(contrasts, kCrossoverSeed);
  std::vector<Crossover> found;
  std::size_t next = 0;
  for (Comparison& one : all) {
    Crossover crossover = std::move(one.crossover);
    const Factor& along = table.factors[crossover.along];
    const std::size_t count = one.contrasts.size();
    std::vector<double> x;
    Eigen::VectorXd values(static_cast<Eigen::Index>(count));
    Eigen::MatrixXd covariance(count, count);
    std::vector<Eigen::VectorXd> spread;
    double student = 0;
    for (const Eigen::VectorXd& contrast : one.contrasts) {
      spread.push_back(model.spread(contrast));
      const double freedom = model.uncertainty(contrast).freedom;
      if (freedom > 0) student = std::max(student, student_limit(0.95, freedom));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const double value = along.values[crossover.along_levels[i]];
      x.push_back(along.logarithmic ? std::log(value) : value);
      const double estimate = model.estimate(one.contrasts[i]);
      values(static_cast<Eigen::Index>(i)) = std::abs(estimate) > kSame ? estimate : 0;
      crossover.ratios.push_back(estimate_of(model, one.contrasts[i], limits[next + i]));
      for (std::size_t j = 0; j < count; ++j) {
        covariance(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
            one.contrasts[i].dot(spread[j]);
      }
    }
    const Difference difference(std::move(x), values, covariance);
    std::size_t last = count;  // the last level at which there is a difference
    for (std::size_t i = 0; i < count; ++i) {
      if (difference.at_level(i) == 0) continue;
      const std::size_t below = std::exchange(last, i);
      if (below == count || difference.at_level(below) * difference.at_level(i) > 0) continue;
      double limit = student;
      for (std::size_t j = below; j <= i; ++j) limit = std::max(limit, limits[next + j]);
      Crossing crossing = crossing_between(difference, below, i, limit);
      if (along.logarithmic) {
        for (double* value : {&crossing.at, &crossing.low, &crossing.high})
          *value = std::exp(*value);
      }
      crossover.crossings.push_back(crossing);
    }
    double widest = student;
    for (std::size_t i = 0; i < count; ++i) widest = std::max(widest, limits[next + i]);
    crossover.curve = curve_of(difference, along.logarithmic, widest);
    next += count;
    found.push_back(std::move(crossover));
  }
  return found;
}

}  // namespace quintet
