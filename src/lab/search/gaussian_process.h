// What noisy values at some points say about a function at all others (Rasmussen and Williams,
// 2006): points that are near in what matters have similar values. How far each parameter reaches,
// and how noisy values are, is found from the values themselves, as far as they tell.
#pragma once

#include <vector>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "base/philox.h"

namespace quintet {

// Noisy values of a function, or of several that are like each other: the same one seen from nearer
// and nearer, level 0 being the one that matters.
struct NoisyValues {
  // Whether a column of points has neighbouring numbers; if not, different ones are all equally far
  // apart.
  std::vector<bool> ordered;
  // A row for each value, and then for each point whose value is still to come: those change no
  // mean, and leave less to be learned around them.
  Eigen::MatrixXd points;
  Eigen::VectorXd values;  // best given with mean 0 and variance 1
  Eigen::VectorXd levels;  // of all points: how many levels away from the one that matters

  // Along a parameter, between numbers in its column.
  double squared_gap(Eigen::Index parameter, double a, double b) const {
    if (!ordered[static_cast<std::size_t>(parameter)]) return a == b ? 0 : 1;
    return (a - b) * (a - b);
  }
  bool one_level() const { return levels.isZero(); }
};

// What kind of function it is.
struct FunctionShape {
  // How far values reach along each parameter, in units of its range: long is unimportant.
  Eigen::VectorXd lengths;
  double noise = 0;  // variance of values, as a share of the function's own
  double fade = 0;   // functions a level apart correlate by exp(-fade)
};
// The most plausible shape, and then others about as often as they are plausible: a few values
// leave much open, and who believes in one shape alone is too sure of where the best is.
std::vector<FunctionShape> plausible_shapes(const NoisyValues& known, std::size_t count,
                                            PhiloxSequence& random);

struct Belief {
  double mean = 0, deviation = 0;  // of the function, without the noise of values
};

class GaussianProcess {
 public:
  // `known` must outlive it.
  GaussianProcess(const NoisyValues& known, FunctionShape shape);

  // At the level that matters.
  Belief at(const Eigen::VectorXd& point) const;
  // The deviation that a value has because of noise alone.
  double noise_deviation() const;

 private:
  double correlation_with(Eigen::Index known, const Eigen::VectorXd& point, double level) const;

  const NoisyValues& known_;
  const FunctionShape shape_;
  const Eigen::VectorXd importance_;    // of squared gaps
  double scale_ = 1;                    // the function's variance
  Eigen::LLT<Eigen::MatrixXd> factor_;  // of all points
  Eigen::VectorXd weights_;             // of points with values
};

}  // namespace quintet
