// The logarithm of the response as a sum: a constant, the blocks, an effect of each factor's level
// and one of each pair of two factors' levels. Fitted by least squares; designs may have holes
// (settings that cannot be): what they leave undetermined is known and said.
#pragma once

#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "lab/statistics/table.h"

namespace quintet {

// A group of the model's columns: one factor's levels, two factors' pairs, or (no factor) the
// blocks.
struct Term {
  std::vector<std::size_t> factors;
  Eigen::Index first = 0, count = 0;

  bool contains(const Term& other) const;  // all of its factors
};

// For each factor a weight for each of its levels, adding up to one: the average over settings.
using Profile = std::vector<Eigen::VectorXd>;

// The spread of single observations about their mean, in logarithms.
struct Noise {
  enum class From { kNothing, kRepeats, kResiduals };
  From from = From::kNothing;
  double variance = 0;
  double freedom = 0;
};

class LinearModel {
 public:
  // Whether to have a term for each pair of factors. The table must outlive the model.
  LinearModel(const Table& table, bool pairs);
  // How many columns such a model has; the cost of a fit grows with their third power.
  static std::size_t columns(const Table& table, bool pairs);

  const std::vector<Term>& terms() const { return terms_; }
  Eigen::Index width() const { return width_; }
  Eigen::Index rank() const { return rank_; }
  double residual_freedom() const { return static_cast<double>(log_response_.size() - rank_); }
  double total_squares() const { return log_response_.squaredNorm(); }  // about the mean
  double residual_squares() const;

  // The design row of an average over settings. Differences of such rows are contrasts.
  Eigen::VectorXd row(const Profile& profile) const;
  // Whether the observations determine a contrast.
  bool estimable(const Eigen::VectorXd& contrast) const;
  double estimate(const Eigen::VectorXd& contrast) const { return contrast.dot(coefficients_); }
  // The covariance of two estimates is one's contrast times the spread of the other.
  Eigen::VectorXd spread(const Eigen::VectorXd& contrast) const;
  // The variance of an estimate, and the degrees of freedom with which it is known.
  struct Uncertainty {
    double variance = 0, freedom = 0;
  };
  Uncertainty uncertainty(const Eigen::VectorXd& contrast) const;

  // What a term explains beyond all terms that do not contain it (type II), with its degrees of
  // freedom.
  struct Explained {
    double squares = 0, freedom = 0;
  };
  Explained explained(const Term& term) const;

  // From repetitions of the same setting, blocks taken out; where these are too few, from what the
  // model leaves over.
  const Noise& noise() const { return noise_; }
  // What the model misses where that is more than repetitions vary by (an F test at 5 %): by how
  // much settings stray from it, as if by chance. In a complete table this touches no effect. In
  // one with holes, or whose rows differ in more than the factors, part of it gets into effects,
  // and that part is in their uncertainty. Without freedom where nothing gets there.
  const Noise& missed() const { return missed_; }
  // Runs of a setting, on average.
  double repetitions() const;
  // Repetitions alone; without freedom where there are none.
  const Noise& repeats() const { return repeats_; }

  // For each contrast what |estimate - truth| / standard error stays below in 95 of 100 bootstrap
  // tables: noise is drawn anew for each block from the residuals of a block drawn at random, and
  // the table is fitted again. The same seed gives the same answer.
  std::vector<double> bootstrap_limits(const std::vector<Eigen::VectorXd>& contrasts,
                                       std::uint64_t seed) const;

 private:
  void add_terms(bool pairs);
  void fit();
  void estimate_noise();
  void estimate_missed(double rounding);
  // For a spread of one: how what is missed adds to the covariances of coefficients' sums (X'y).
  Eigen::MatrixXd leakage() const;
  // Sum of squares about cell means and blocks; `values` become the residuals.
  double within_cells(Eigen::VectorXd& values) const;
  Eigen::VectorXd fitted() const;
  Eigen::VectorXd transpose_times(const Eigen::VectorXd& values) const;  // X' v

  const Table& table_;
  std::vector<Term> terms_;
  Eigen::Index width_ = 0;
  std::vector<std::vector<Eigen::Index>> ones_;  // for each row of X its columns that are 1
  Eigen::VectorXd log_response_;                 // about its mean
  Eigen::MatrixXd gram_, inverse_;               // X'X and its pseudo-inverse
  Eigen::VectorXd moments_, coefficients_;       // X'y, and the solution of least norm
  Eigen::Index rank_ = 0;
  std::vector<std::size_t> cell_;  // of each row
  std::size_t cells_ = 0;
  Eigen::MatrixXd block_columns_;  // blocks about their cell means
  Eigen::MatrixXd block_inverse_;
  Eigen::VectorXd residuals_;  // the noise's, scaled to its variance
  Noise noise_, repeats_, missed_;
  Eigen::MatrixXd leaked_;  // the same of coefficients
};

}  // namespace quintet
