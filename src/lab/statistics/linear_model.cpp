#include "lab/statistics/linear_model.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <Eigen/Eigenvalues>
#include <Eigen/QR>

#include "base/check.h"
#include "base/philox.h"
#include "lab/statistics/distributions.h"

namespace quintet {
namespace {

constexpr int kBootstrapTables = 999;
// Fewer repetitions than this say less about the noise than the residuals do.
constexpr double kEnoughRepeats = 5;
// Sums of squares below this share of the whole are rounding.
constexpr double kRounding = 1e-22;
// Less than this share of an effect's variance is rounding, too.
constexpr double kNoLeak = 1e-9;

// Of a symmetric positive semidefinite matrix; sets its rank.
Eigen::MatrixXd pseudo_inverse(const Eigen::MatrixXd& matrix, Eigen::Index& rank) {
  rank = 0;
  if (matrix.size() == 0) return matrix;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix);
  const double least = 1e-10 * std::max(solver.eigenvalues().maxCoeff(), 1e-30);
  Eigen::VectorXd inverted = solver.eigenvalues();
  for (double& value : inverted) {
    value = value > least ? (++rank, 1 / value) : 0;
  }
  return solver.eigenvectors() * inverted.asDiagonal() * solver.eigenvectors().transpose();
}

}  // namespace

bool Term::contains(const Term& other) const {
  if (other.factors.empty()) return factors.empty();
  return std::all_of(other.factors.begin(), other.factors.end(), [&](std::size_t f) {
    return std::find(factors.begin(), factors.end(), f) != factors.end();
  });
}

std::size_t LinearModel::columns(const Table& table, bool pairs) {
  std::size_t sum = 0, squares = 0;
  for (const Factor& factor : table.factors) {
    sum += factor.levels.size();
    squares += factor.levels.size() * factor.levels.size();
  }
  return 1 + sum + (pairs ? (sum * sum - squares) / 2 : 0) + (table.blocks > 1 ? table.blocks : 0);
}

LinearModel::LinearModel(const Table& table, bool pairs) : table_(table) {
  QT_CHECK(!table.rows.empty(), "a model of no observations");
  add_terms(pairs);
  fit();
  estimate_noise();
}

void LinearModel::add_terms(bool pairs) {
  width_ = 1;  // the constant
  const auto add = [&](std::vector<std::size_t> factors, std::size_t count) {
    terms_.push_back({std::move(factors), width_, static_cast<Eigen::Index>(count)});
    width_ += terms_.back().count;
  };
  const auto& factors = table_.factors;
  if (table_.blocks > 1) add({}, table_.blocks);
  for (std::size_t f = 0; f < factors.size(); ++f) add({f}, factors[f].levels.size());
  for (std::size_t f = 0; pairs && f < factors.size(); ++f) {
    for (std::size_t g = f + 1; g < factors.size(); ++g) {
      add({f, g}, factors[f].levels.size() * factors[g].levels.size());
    }
  }
}

void LinearModel::fit() {
  const auto n = static_cast<Eigen::Index>(table_.rows.size());
  log_response_.resize(n);
  std::map<std::pair<std::vector<std::size_t>, std::size_t>, std::size_t> places;
  for (const Observation& row : table_.rows) {
    QT_CHECK(row.response > 0, "a response of {} has no logarithm", row.response);
    log_response_(static_cast<Eigen::Index>(ones_.size())) = std::log(row.response);
    std::vector<Eigen::Index> ones = {0};
    for (const Term& term : terms_) {
      std::size_t offset = row.block;
      if (term.factors.size() == 1) offset = row.level[term.factors[0]];
      if (term.factors.size() == 2) {
        offset = row.level[term.factors[0]] * table_.factors[term.factors[1]].levels.size() +
                 row.level[term.factors[1]];
      }
      ones.push_back(term.first + static_cast<Eigen::Index>(offset));
    }
    ones_.push_back(std::move(ones));
    cell_.push_back(places.try_emplace({row.level, row.setting}, places.size()).first->second);
  }
  cells_ = places.size();
  log_response_.array() -= log_response_.mean();
  gram_ = Eigen::MatrixXd::Zero(width_, width_);
  for (const auto& ones : ones_) {
    for (const Eigen::Index i : ones) {
      for (const Eigen::Index j : ones) gram_(i, j) += 1;
    }
  }
  inverse_ = pseudo_inverse(gram_, rank_);
  moments_ = transpose_times(log_response_);
  coefficients_ = inverse_ * moments_;
}

Eigen::VectorXd LinearModel::transpose_times(const Eigen::VectorXd& values) const {
  Eigen::VectorXd result = Eigen::VectorXd::Zero(width_);
  for (std::size_t r = 0; r < ones_.size(); ++r) {
    for (const Eigen::Index i : ones_[r]) result(i) += values(static_cast<Eigen::Index>(r));
  }
  return result;
}

Eigen::VectorXd LinearModel::fitted() const {
  Eigen::VectorXd result = Eigen::VectorXd::Zero(log_response_.size());
  for (std::size_t r = 0; r < ones_.size(); ++r) {
    for (const Eigen::Index i : ones_[r]) result(static_cast<Eigen::Index>(r)) += coefficients_(i);
  }
  return result;
}

double LinearModel::residual_squares() const {
  return (log_response_ - fitted()).squaredNorm();
}

Eigen::VectorXd LinearModel::row(const Profile& profile) const {
  Eigen::VectorXd result = Eigen::VectorXd::Zero(width_);
  result(0) = 1;
  for (const Term& term : terms_) {
    if (term.factors.empty()) {
      result.segment(term.first, term.count).setConstant(1.0 / static_cast<double>(term.count));
    } else if (term.factors.size() == 1) {
      result.segment(term.first, term.count) = profile[term.factors[0]];
    } else {
      const Eigen::VectorXd& outer = profile[term.factors[0]];
      const Eigen::VectorXd& inner = profile[term.factors[1]];
      for (Eigen::Index i = 0; i < outer.size(); ++i) {
        result.segment(term.first + i * inner.size(), inner.size()) = outer(i) * inner;
      }
    }
  }
  return result;
}

bool LinearModel::estimable(const Eigen::VectorXd& contrast) const {
  return (gram_ * (inverse_ * contrast) - contrast).cwiseAbs().maxCoeff() < 1e-6;
}

LinearModel::Explained LinearModel::explained(const Term& term) const {
  // The columns of the constant and of all terms that do not contain this one, then its own.
  std::vector<Eigen::Index> columns = {0};
  for (const Term& other : terms_) {
    if (other.contains(term)) continue;
    for (Eigen::Index i = 0; i < other.count; ++i) columns.push_back(other.first + i);
  }
  const std::size_t without = columns.size();
  for (Eigen::Index i = 0; i < term.count; ++i) columns.push_back(term.first + i);
  Explained result;
  for (const bool with : {true, false}) {
    if (!with) columns.resize(without);
    const Eigen::MatrixXd part = gram_(columns, columns);
    const Eigen::VectorXd moments = moments_(columns);
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver(part);
    solver.setThreshold(1e-10);
    const double sign = with ? 1 : -1;
    result.squares += sign * moments.dot(solver.solve(moments));
    result.freedom += sign * static_cast<double>(solver.rank());
  }
  result.squares = std::max(result.squares, 0.0);
  return result;
}

double LinearModel::within_cells(Eigen::VectorXd& values) const {
  Eigen::VectorXd sums = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(cells_));
  Eigen::VectorXd counts = sums;
  for (std::size_t r = 0; r < cell_.size(); ++r) {
    sums(static_cast<Eigen::Index>(cell_[r])) += values(static_cast<Eigen::Index>(r));
    counts(static_cast<Eigen::Index>(cell_[r])) += 1;
  }
  for (std::size_t r = 0; r < cell_.size(); ++r) {
    const auto c = static_cast<Eigen::Index>(cell_[r]);
    values(static_cast<Eigen::Index>(r)) -= sums(c) / counts(c);
  }
  if (block_columns_.size() > 0) {
    values -= block_columns_ * (block_inverse_ * (block_columns_.transpose() * values));
  }
  return values.squaredNorm();
}

void LinearModel::estimate_noise() {
  const auto n = static_cast<Eigen::Index>(table_.rows.size());
  Eigen::Index block_rank = 0;
  if (table_.blocks > 1) {
    Eigen::MatrixXd columns = Eigen::MatrixXd::Zero(n, static_cast<Eigen::Index>(table_.blocks));
    for (Eigen::Index r = 0; r < n; ++r) {
      columns(r, static_cast<Eigen::Index>(table_.rows[static_cast<std::size_t>(r)].block)) = 1;
    }
    for (Eigen::Index b = 0; b < columns.cols(); ++b) {
      Eigen::VectorXd column = columns.col(b);
      within_cells(column);  // block_columns_ is still empty: about cell means alone
      columns.col(b) = column;
    }
    block_inverse_ = pseudo_inverse(columns.transpose() * columns, block_rank);
    block_columns_ = std::move(columns);
  }
  const double rounding = kRounding * std::max(total_squares(), 1.0);
  residuals_ = log_response_;
  const double squares = within_cells(residuals_);
  repeats_.freedom = static_cast<double>(n - static_cast<Eigen::Index>(cells_) - block_rank);
  if (repeats_.freedom > 0) {
    repeats_.from = Noise::From::kRepeats;
    repeats_.variance = squares > rounding ? squares / repeats_.freedom : 0;
  }
  noise_ = repeats_;
  if (repeats_.freedom < kEnoughRepeats && residual_freedom() > repeats_.freedom) {
    residuals_ = log_response_ - fitted();
    const double left = residuals_.squaredNorm();
    noise_ = {Noise::From::kResiduals, left > rounding ? left / residual_freedom() : 0,
              residual_freedom()};
  } else {
    estimate_missed(rounding);
  }
  if (noise_.freedom > 0) residuals_ *= std::sqrt(static_cast<double>(n) / noise_.freedom);
}

void LinearModel::estimate_missed(double rounding) {
  const double freedom = residual_freedom() - repeats_.freedom;
  if (repeats_.freedom <= 0 || freedom <= 0) return;
  const double squares = residual_squares() - repeats_.variance * repeats_.freedom;
  if (squares <= rounding) return;
  const double mean_square = squares / freedom;
  if (repeats_.variance > 0 &&
      fisher_tail(mean_square / repeats_.variance, freedom, repeats_.freedom) >= 0.05) {
    return;
  }
  leaked_ = inverse_ * leakage() * inverse_;
  if (leaked_.diagonal().maxCoeff() < kNoLeak * inverse_.diagonal().maxCoeff()) return;
  // The mean square holds a run's noise once, and a setting's straying as often as it ran.
  missed_ = {Noise::From::kResiduals, (mean_square - repeats_.variance) / repetitions(), freedom};
}

double LinearModel::repetitions() const {
  return static_cast<double>(table_.rows.size()) / static_cast<double>(cells_);
}

// An estimate is a sum over settings, each with a weight. What the model misses of a setting is, in
// the complete table, orthogonal to all means over all but two factors. The weights of a complete
// table are made of such means; those of a table with holes, zero at the holes, are not: what they
// have beyond is what lets something in. The result is the inner products of that: of all of the
// weights, less those of their projection on means over all but two factors, one, and none
// (inclusion and exclusion).
Eigen::MatrixXd LinearModel::leakage() const {
  const auto& factors = table_.factors;
  Eigen::MatrixXd weights = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(cells_), width_);
  std::vector<const std::vector<std::size_t>*> level(cells_);
  for (std::size_t r = 0; r < ones_.size(); ++r) {
    for (const Eigen::Index i : ones_[r]) weights(static_cast<Eigen::Index>(cell_[r]), i) += 1;
    level[cell_[r]] = &table_.rows[r].level;
  }
  Eigen::MatrixXd result = weights.transpose() * weights;
  std::set<std::vector<std::size_t>> levels;
  for (const auto* one : level) levels.insert(*one);
  // Rows of the same levels that differ otherwise: what else there could be is not known.
  if (levels.size() < cells_) return result;
  double combinations = 1;
  for (const Factor& factor : factors) combinations *= static_cast<double>(factor.levels.size());
  // Takes away so many times the projection on means over all factors but these.
  const auto take_away = [&](double times, const std::vector<std::size_t>& but) {
    std::size_t means = 1;
    for (const std::size_t f : but) means *= factors[f].levels.size();
    Eigen::MatrixXd sums = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(means), width_);
    for (std::size_t c = 0; c < cells_; ++c) {
      std::size_t mean = 0;
      for (const std::size_t f : but) mean = mean * factors[f].levels.size() + (*level[c])[f];
      sums.row(static_cast<Eigen::Index>(mean)) += weights.row(static_cast<Eigen::Index>(c));
    }
    result -= times * static_cast<double>(means) / combinations * sums.transpose() * sums;
  };
  const auto count = static_cast<double>(factors.size());
  for (std::size_t f = 0; f < factors.size(); ++f) {
    for (std::size_t g = f + 1; g < factors.size(); ++g) take_away(1, {f, g});
    take_away(2 - count, {f});
  }
  take_away((count - 1) * (count - 2) / 2, {});
  return result;
}

Eigen::VectorXd LinearModel::spread(const Eigen::VectorXd& contrast) const {
  Eigen::VectorXd result = noise_.variance * (inverse_ * contrast);
  if (missed_.freedom > 0) result += missed_.variance * (leaked_ * contrast);
  return result;
}

LinearModel::Uncertainty LinearModel::uncertainty(const Eigen::VectorXd& contrast) const {
  const double noise = noise_.variance * std::max(contrast.dot(inverse_ * contrast), 0.0);
  if (missed_.freedom <= 0) return {noise, noise_.freedom};
  const double missed = missed_.variance * std::max(contrast.dot(leaked_ * contrast), 0.0);
  const double variance = noise + missed;
  if (!(variance > 0)) return {0, noise_.freedom};
  // Of a sum of two variances (Satterthwaite).
  return {variance, variance * variance /
                        (noise * noise / noise_.freedom + missed * missed / missed_.freedom)};
}

std::vector<double> LinearModel::bootstrap_limits(const std::vector<Eigen::VectorXd>& contrasts,
                                                  std::uint64_t seed) const {
  const auto count = static_cast<Eigen::Index>(contrasts.size());
  std::vector<double> limits(contrasts.size(), 0);
  if (noise_.freedom <= 0 || noise_.variance == 0 || count == 0) return limits;
  Eigen::MatrixXd weights(count, width_);
  Eigen::VectorXd scale(count);
  for (Eigen::Index c = 0; c < count; ++c) {
    const Eigen::VectorXd& contrast = contrasts[static_cast<std::size_t>(c)];
    weights.row(c) = (inverse_ * contrast).transpose();
    scale(c) = std::sqrt(std::max(contrast.dot(weights.row(c)), 1e-300));
  }
  std::vector<std::vector<Eigen::Index>> members(table_.blocks);
  for (std::size_t r = 0; r < table_.rows.size(); ++r) {
    members[table_.rows[r].block].push_back(static_cast<Eigen::Index>(r));
  }
  const auto pick = [](PhiloxSequence& random, std::size_t bound) {
    return random.below(static_cast<std::uint32_t>(bound));
  };
  std::erase_if(members, [](const auto& rows) { return rows.empty(); });
  std::vector<std::vector<double>> draws(contrasts.size());
  Eigen::VectorXd drawn(log_response_.size());
  for (int table = 0; table < kBootstrapTables; ++table) {
    PhiloxSequence random(seed, static_cast<std::uint64_t>(table));
    for (const auto& block : members) {
      const auto& source = members[pick(random, members.size())];
      for (const Eigen::Index r : block) drawn(r) = residuals_(source[pick(random, source.size())]);
    }
    const Eigen::VectorXd moments = transpose_times(drawn);
    double squares = 0;
    if (noise_.from == Noise::From::kRepeats) {
      squares = within_cells(drawn);
    } else {
      squares = drawn.squaredNorm() - moments.dot(inverse_ * moments);
    }
    const double deviation = std::sqrt(squares / noise_.freedom);
    if (!(deviation > 1e-9 * std::sqrt(noise_.variance))) continue;  // all drawn alike
    const Eigen::VectorXd t = (weights * moments).cwiseAbs().cwiseQuotient(scale) / deviation;
    for (Eigen::Index c = 0; c < count; ++c) draws[static_cast<std::size_t>(c)].push_back(t(c));
  }
  for (std::size_t c = 0; c < draws.size(); ++c) {
    if (draws[c].empty()) continue;
    const auto at =
        static_cast<std::ptrdiff_t>(std::ceil(0.95 * static_cast<double>(draws[c].size() + 1))) - 1;
    const auto place = draws[c].begin() + std::min(at, std::ssize(draws[c]) - 1);
    std::nth_element(draws[c].begin(), place, draws[c].end());
    limits[c] = *place;
  }
  return limits;
}

}  // namespace quintet
