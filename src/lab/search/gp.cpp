#include "lab/search/gp.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/search/gaussian_process.h"
#include "lab/search/normal.h"

namespace quintet {
namespace {

using Eigen::Index;
using Eigen::VectorXd;

constexpr std::size_t kAnywhere = 400;            // candidates from all over the space
constexpr std::size_t kCenters = 4, kNear = 100;  // and around each of the best trials
constexpr double kWidths[] = {0.03, 0.1, 0.2};    // how far from them
// The cost of a fit grows with the third power of its observations.
constexpr std::size_t kMostObservations = 200;
constexpr std::size_t kFewestObservations = 4;
constexpr std::size_t kShapes = 8;

// A trial's value at a rung; infinite: it has none.
double loss_at(const TriedSettings& one, std::int64_t rung) {
  if (rung == one.rung) return one.loss;
  const bool was_there = rung >= 0 && rung < one.rung && rung < std::ssize(one.earlier);
  return was_there ? one.earlier[static_cast<std::size_t>(rung)]
                   : std::numeric_limits<double>::infinity();
}

bool has_failed(const TriedSettings& one) {
  return one.rung >= 0 && !std::isfinite(one.loss);
}

// As far above the median as the best is below it.
double worst_that_matters(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median =
      values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
  return median + (median - values[0]);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Least squares, and what it leaves unexplained. Never falling: nothing is better for having been
// worse before.
struct RisingLine {
  RisingLine(const std::vector<double>& x, const std::vector<double>& y)
      : mean_x(mean_of(x)), mean_y(mean_of(y)) {
    double xx = 0, xy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      xx += (x[i] - mean_x) * (x[i] - mean_x);
      xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    slope = xx > 0 ? std::max(xy / xx, 0.0) : 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      variance +=
          (y[i] - at(x[i])) * (y[i] - at(x[i])) / std::max(static_cast<double>(x.size()) - 2, 1.0);
  }
  double at(double x) const { return mean_y + slope * (x - mean_x); }

  double mean_x, mean_y, slope = 0, variance = 0;
};

// Where settings are: a number in the unit interval, or that of a choice without order. A parameter
// that does not count there is in its middle, or a choice of its own: what makes it not count tells
// such settings apart.
VectorXd point_of(const SearchSpace& space, const Settings& settings) {
  VectorXd point(static_cast<Index>(space.size()));
  for (std::size_t p = 0; p < space.size(); ++p) {
    const SearchParameter& parameter = space.parameters()[p];
    const auto found = settings.find(parameter.key);
    const double without = parameter.ordered() ? 0.5 : -1;
    point[static_cast<Index>(p)] =
        found == settings.end() ? without : parameter.cell_of(found->second).middle();
  }
  return point;
}

Settings somewhere(const SearchSpace& space, PhiloxSequence& random) {
  std::vector<double> units(space.size());
  for (double& unit : units) unit = random.uniform();
  return space.settings_at(units);
}

Settings somewhere_near(const SearchSpace& space, const Settings& center, PhiloxSequence& random) {
  const double width = kWidths[random.below(std::size(kWidths))];
  std::vector<double> units;
  for (const SearchParameter& parameter : space.parameters()) {
    const double uniform = random.uniform(), other = random.uniform();
    const auto found = center.find(parameter.key);
    if (found == center.end()) {
      units.push_back(uniform);
      continue;
    }
    const double middle = parameter.cell_of(found->second).middle();
    if (parameter.ordered()) {
      // What would lie outside is at the bound: the best of a range often is.
      units.push_back(std::clamp(middle + width * normal_quantile(uniform), 0.0, 1 - 0x1p-32));
    } else {
      units.push_back(uniform < width ? other : middle);
    }
  }
  return space.settings_at(units);
}

// Of more trials than can be had: the better half of what can, and of the others some of every
// quality, so that bad places are not forgotten.
ComparedTrials thinned(ComparedTrials all) {
  const std::size_t count = all.trials.size();
  if (count <= kMostObservations) return all;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return all.values[a] < all.values[b]; });
  constexpr std::size_t kBest = kMostObservations / 2, kOthers = kMostObservations - kBest;
  ComparedTrials some;
  for (std::size_t i = 0; i < kMostObservations; ++i) {
    const std::size_t at = order[i < kBest ? i : kBest + (i - kBest) * (count - kBest) / kOthers];
    some.trials.push_back(all.trials[at]);
    some.values.push_back(all.values[at]);
    some.doubts.push_back(all.doubts[at]);
  }
  return some;
}

// By how much it is expected to be below `best`, where being above counts as nothing, and the less
// the more of what a trial there would say is noise (Huang et al., 2006): or else the best place so
// far is tried again and again, for its luck.
double expected_improvement(const Belief& belief, double best, double noise) {
  const double off = (best - belief.mean) / belief.deviation;
  const double plain = belief.deviation * (off * normal_below(off) + normal_density(off));
  return plain * (1 - noise / std::hypot(noise, belief.deviation));
}

struct Promise {
  double improvement = 0, mean = 0;
};

// On average over what the function may be like (Snoek et al., 2012).
class ImprovementUnderShapes {
 public:
  ImprovementUnderShapes(const NoisyValues& known, const std::vector<FunctionShape>& shapes) {
    for (const FunctionShape& shape : shapes) {
      processes_.emplace_back(known, shape);
      double best = std::numeric_limits<double>::infinity();
      for (Index i = 0; i < known.values.size(); ++i)
        best = std::min(best, processes_.back().at(known.points.row(i)).mean);
      best_.push_back(best);
    }
  }

  Promise at(const VectorXd& point) const {
    Promise promise;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const Belief belief = processes_[i].at(point);
      promise.improvement +=
          expected_improvement(belief, best_[i], processes_[i].noise_deviation());
      promise.mean += belief.mean / static_cast<double>(processes_.size());
    }
    return promise;
  }

 private:
  std::vector<GaussianProcess> processes_;
  std::vector<double> best_;  // of what each believes of the points that have values
};

}  // namespace

ComparedTrials compare_at_one_rung(std::span<const TriedSettings> past, std::size_t enough) {
  std::int64_t target = -1;
  for (const TriedSettings& one : past) target = std::max(target, one.rung);
  std::vector<double> there;
  for (; target >= 0; --target) {
    there.clear();
    for (const TriedSettings& one : past) {
      if (const double loss = loss_at(one, target); std::isfinite(loss)) there.push_back(loss);
    }
    if (there.size() >= enough) break;
  }
  ComparedTrials compared;
  if (target < 0) return compared;
  const double worst = worst_that_matters(there);
  const auto add = [&](std::size_t trial, double value, double doubt) {
    compared.trials.push_back(trial);
    compared.values.push_back(std::min(value, worst));
    compared.doubts.push_back(doubt);
  };
  for (std::size_t i = 0; i < past.size(); ++i) {
    if (has_failed(past[i])) {
      add(i, worst, 0);
    } else if (past[i].rung >= target) {
      add(i, loss_at(past[i], target), 0);
    }
  }
  for (std::int64_t rung = 0; rung < target; ++rung) {
    std::vector<double> all, early, late;
    for (const TriedSettings& one : past) {
      if (const double loss = loss_at(one, rung); std::isfinite(loss)) all.push_back(loss);
    }
    if (all.empty()) continue;
    const double worst_early = worst_that_matters(all);
    for (const TriedSettings& one : past) {
      const double before = loss_at(one, rung), after = loss_at(one, target);
      if (!std::isfinite(before) || !std::isfinite(after)) continue;
      early.push_back(std::min(before, worst_early));
      late.push_back(std::min(after, worst));
    }
    if (early.size() < kFewestObservations) continue;
    const RisingLine line(early, late);
    for (std::size_t i = 0; i < past.size(); ++i) {
      if (past[i].rung == rung && !has_failed(past[i]))
        add(i, line.at(std::min(past[i].loss, worst_early)), line.variance);
    }
  }
  return compared;
}

std::vector<Settings> gp_candidates(const SearchSpace& space, std::span<const TriedSettings> past,
                                    PhiloxSequence& random) {
  const ComparedTrials known =
      thinned(compare_at_one_rung(past, std::max(space.size() + 1, kFewestObservations)));
  if (known.trials.empty()) return {};
  const auto count = static_cast<Index>(known.trials.size());
  std::vector<const Settings*> places;
  for (const std::size_t trial : known.trials) places.push_back(&past[trial].settings);
  for (const TriedSettings& one : past) {
    if (one.rung < 0) places.push_back(&one.settings);
  }
  NoisyValues values;
  for (const SearchParameter& parameter : space.parameters())
    values.ordered.push_back(parameter.ordered());
  values.points.resize(std::ssize(places), static_cast<Index>(space.size()));
  for (std::size_t i = 0; i < places.size(); ++i)
    values.points.row(static_cast<Index>(i)) = point_of(space, *places[i]);
  values.values = Eigen::Map<const VectorXd>(known.values.data(), count);
  values.doubts = Eigen::Map<const VectorXd>(known.doubts.data(), count);
  values.values.array() -= values.values.mean();
  const double variance = values.values.squaredNorm() / static_cast<double>(count);
  if (variance > 0) {
    values.values /= std::sqrt(variance);
    values.doubts /= variance;
  }
  const ImprovementUnderShapes improvement(values, plausible_shapes(values, kShapes, random));

  // By what is believed of them, not by their values: those have noise, and the best of them is
  // better than it is.
  std::vector<std::pair<double, const Settings*>> believed;
  for (Index i = 0; i < count; ++i)
    believed.emplace_back(improvement.at(values.points.row(i)).mean,
                          places[static_cast<std::size_t>(i)]);
  std::stable_sort(believed.begin(), believed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });

  std::vector<std::pair<Promise, Settings>> candidates;
  const auto consider = [&](Settings settings) {
    const Promise promise = improvement.at(point_of(space, settings));
    candidates.emplace_back(promise, std::move(settings));
  };
  for (std::size_t i = 0; i < kAnywhere; ++i) consider(somewhere(space, random));
  for (std::size_t c = 0; c < std::min(kCenters, believed.size()); ++c) {
    for (std::size_t i = 0; i < kNear; ++i)
      consider(somewhere_near(space, *believed[c].second, random));
  }
  // Where nothing is expected to improve to the last bit, what is expected to be good.
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.first.improvement != b.first.improvement ? a.first.improvement > b.first.improvement
                                                      : a.first.mean < b.first.mean;
  });
  std::vector<Settings> sorted;
  for (auto& [promise, settings] : candidates) sorted.push_back(std::move(settings));
  return sorted;
}

}  // namespace quintet
