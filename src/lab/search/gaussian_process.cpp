#include "lab/search/gaussian_process.h"

#include <algorithm>
#include <cmath>

#include "lab/search/normal.h"

namespace quintet {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Where nothing is known yet. Points of the unit cube are further apart the more dimensions it has:
// lengths grow with that (Hvarfner et al., 2024), or all points would be strangers.
constexpr double kLengthPerRootOfDimensions = 0.35;
constexpr double kTypicalNoise = 0.01;
constexpr double kTypicalFade = 0.3;
// Of their logarithms.
constexpr double kSpreadOfLength = 1, kSpreadOfNoise = 2, kSpreadOfFade = 1.5;
// So many values' worth of belief that the function's variance is one.
constexpr double kScaleBelief = 2;
constexpr double kLeastNoise = 1e-6;  // keeps matrices positive where points are the same

// Matern's with 5/2: twice differentiable, less stiff than the Gaussian.
double correlation(double squared_distance) {
  const double r = std::sqrt(5 * squared_distance);
  return (1 + r + r * r / 3) * std::exp(-r);
}

double faded(double fade, double levels) {
  return levels == 0 ? 1 : std::exp(-fade * levels);
}

// Of the logarithms of all lengths, of the noise and, with more than one level, of the fade, in
// this order.
class Plausibility {
 public:
  explicit Plausibility(const NoisyValues& known)
      : known_(known),
        count_(known.values.size()),
        lengths_(known.points.cols()),
        fades_(!known.one_level()),
        usual_length_(
            std::log(kLengthPerRootOfDimensions * std::sqrt(static_cast<double>(lengths_)))),
        gaps_(static_cast<std::size_t>(lengths_), MatrixXd::Zero(count_, count_)) {
    for (Index i = 0; i < count_; ++i) {
      for (Index j = 0; j < i; ++j) {
        for (Index p = 0; p < lengths_; ++p) {
          gaps_[static_cast<std::size_t>(p)](i, j) =
              known.squared_gap(p, known.points(i, p), known.points(j, p));
        }
      }
    }
  }

  Index size() const { return lengths_ + (fades_ ? 2 : 1); }
  // A step that changes something and not everything.
  double spread(Index i) const {
    return i < lengths_ ? kSpreadOfLength : i == lengths_ ? kSpreadOfNoise : kSpreadOfFade;
  }

  VectorXd usual() const {
    VectorXd at = VectorXd::Constant(size(), usual_length_);
    at[lengths_] = std::log(kTypicalNoise);
    if (fades_) at[lengths_ + 1] = std::log(kTypicalFade);
    return at;
  }

  // Three spreads either way: beyond, functions are flat, or nothing but noise.
  VectorXd bounded(VectorXd at) const {
    const VectorXd middle = usual();
    for (Index i = 0; i < size(); ++i)
      at[i] = std::clamp(at[i], middle[i] - 3 * spread(i), middle[i] + 3 * spread(i));
    return at;
  }

  // The logarithm, up to a constant. The scale is the best there is for them.
  double at(const VectorXd& logs) const {
    MatrixXd matrix = MatrixXd::Zero(count_, count_);
    for (Index p = 0; p < lengths_; ++p)
      matrix += std::exp(-2 * logs[p]) * gaps_[static_cast<std::size_t>(p)];
    const double fade = fades_ ? std::exp(logs[lengths_ + 1]) : 0;
    for (Index i = 0; i < count_; ++i) {
      for (Index j = 0; j < i; ++j)
        matrix(i, j) =
            correlation(matrix(i, j)) * faded(fade, std::abs(known_.levels[i] - known_.levels[j]));
      matrix(i, i) = 1 + std::exp(logs[lengths_]) + kLeastNoise;
    }
    const Eigen::LLT<MatrixXd> factor(matrix);
    const double weight = static_cast<double>(count_) + kScaleBelief;
    const double scale =
        (factor.matrixL().solve(known_.values).squaredNorm() + kScaleBelief) / weight;
    const VectorXd diagonal = factor.matrixLLT().diagonal();
    const VectorXd middle = usual();
    double before = 0;
    for (Index i = 0; i < size(); ++i) before += std::pow((logs[i] - middle[i]) / spread(i), 2);
    return -0.5 * weight * std::log(scale) - diagonal.array().log().sum() - 0.5 * before;
  }

  FunctionShape shape(const VectorXd& logs) const {
    return {logs.head(lengths_).array().exp(), std::exp(logs[lengths_]) + kLeastNoise,
            fades_ ? std::exp(logs[lengths_ + 1]) : 0};
  }

 private:
  const NoisyValues& known_;
  const Index count_, lengths_;
  const bool fades_;
  const double usual_length_;
  std::vector<MatrixXd> gaps_;  // squared, along each parameter
};

}  // namespace

std::vector<FunctionShape> plausible_shapes(const NoisyValues& known, std::size_t count,
                                            PhiloxSequence& random) {
  const Plausibility plausibility(known);
  VectorXd at = plausibility.usual();
  double here = plausibility.at(at);
  // The top, by steps along one of them at a time that become smaller: it is flat, so that neither
  // gradients nor more digits pay.
  for (double step = 1; step > 0.2;) {
    bool moved = false;
    for (Index i = 0; i < plausibility.size(); ++i) {
      for (const double sign : {1.0, -1.0}) {
        VectorXd next = at;
        next[i] += sign * step * plausibility.spread(i);
        next = plausibility.bounded(std::move(next));
        const double there = plausibility.at(next);
        if (!(there > here + 1e-9)) continue;
        at = std::move(next);
        here = there;
        moved = true;
        break;
      }
    }
    if (!moved) step /= 2;
  }
  std::vector<FunctionShape> shapes = {plausibility.shape(at)};
  // From there a walk (Metropolis et al., 1953), a sweep over all of them for each shape.
  while (shapes.size() < count) {
    for (Index i = 0; i < plausibility.size(); ++i) {
      VectorXd next = at;
      next[i] += plausibility.spread(i) * normal_quantile(random.uniform());
      const double luck = std::log(1 - random.uniform());
      if (next != plausibility.bounded(next)) continue;
      const double there = plausibility.at(next);
      if (!(luck < there - here)) continue;
      at = std::move(next);
      here = there;
    }
    shapes.push_back(plausibility.shape(at));
  }
  return shapes;
}

GaussianProcess::GaussianProcess(const NoisyValues& known, FunctionShape shape)
    : known_(known),
      shape_(std::move(shape)),
      importance_(shape_.lengths.array().square().inverse()) {
  const Index all = known.points.rows(), count = known.values.size();
  MatrixXd matrix = MatrixXd::Zero(all, all);
  for (Index i = 0; i < all; ++i) {
    const VectorXd point = known.points.row(i);
    for (Index j = 0; j < i; ++j) matrix(i, j) = correlation_with(j, point, known.levels[i]);
    matrix(i, i) = 1 + shape_.noise;
  }
  factor_.compute(matrix);
  const MatrixXd lower = factor_.matrixLLT().topLeftCorner(count, count);
  const auto triangle = lower.triangularView<Eigen::Lower>();
  const VectorXd half = triangle.solve(known.values);
  scale_ = (half.squaredNorm() + kScaleBelief) / (static_cast<double>(count) + kScaleBelief);
  weights_ = triangle.transpose().solve(half);
}

double GaussianProcess::correlation_with(Index known, const VectorXd& point, double level) const {
  double distance = 0;
  for (Index p = 0; p < point.size(); ++p)
    distance += importance_[p] * known_.squared_gap(p, known_.points(known, p), point[p]);
  return correlation(distance) * faded(shape_.fade, std::abs(known_.levels[known] - level));
}

Belief GaussianProcess::at(const VectorXd& point) const {
  VectorXd near(known_.points.rows());
  for (Index i = 0; i < near.size(); ++i) near[i] = correlation_with(i, point, 0);
  const double explained = factor_.matrixL().solve(near).squaredNorm();
  return {near.head(weights_.size()).dot(weights_),
          std::sqrt(scale_ * std::max(1 - explained, 1e-9))};
}

double GaussianProcess::noise_deviation() const {
  return std::sqrt(scale_ * shape_.noise);
}

}  // namespace quintet
