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
constexpr double kShares[] = {0.05, 0.15, 0.4};   // how far from them, of a parameter's length
constexpr double kAnyWidth = 0.5;                 // from there on it is anywhere in its range
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

double deviation_of(const std::vector<double>& values, double mean) {
  double square = 0;
  for (const double value : values) square += (value - mean) * (value - mean);
  return std::sqrt(square / static_cast<double>(values.size()));
}

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

// Along each parameter the further the less it matters: where nothing is known to, everything is
// near, and a place must not be taken for good for what it happens to have there.
Settings somewhere_near(const SearchSpace& space, const Settings& center, const VectorXd& lengths,
                        PhiloxSequence& random) {
  const double share = kShares[random.below(std::size(kShares))];
  std::vector<double> units;
  for (std::size_t p = 0; p < space.size(); ++p) {
    const SearchParameter& parameter = space.parameters()[p];
    const double width = share * lengths[static_cast<Index>(p)];
    const double uniform = random.uniform(), other = random.uniform();
    const auto found = center.find(parameter.key);
    if (found == center.end() || (parameter.ordered() && width > kAnyWidth)) {
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

// Of more rows than can be had: those of the better trials for half of what can, and of the others
// some of every quality, so that bad places are not forgotten.
std::vector<ValuesByRung::Row> thinned(const std::vector<ValuesByRung::Row>& all) {
  if (all.size() <= kMostObservations) return all;
  // Where each trial's rows begin, by its last value.
  std::vector<std::size_t> firsts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || all[i].trial != all[i - 1].trial) firsts.push_back(i);
  }
  std::stable_sort(firsts.begin(), firsts.end(),
                   [&](std::size_t a, std::size_t b) { return all[a].value < all[b].value; });
  std::vector<ValuesByRung::Row> some;
  const auto take = [&](std::size_t first) {
    for (std::size_t i = first; i < all.size() && all[i].trial == all[first].trial; ++i)
      some.push_back(all[i]);
  };
  std::size_t best = 0;
  while (some.size() < kMostObservations / 2) take(firsts[best++]);
  // As many trials as there are rows left, if each had as many as trials have on average.
  const std::size_t others = std::min(
      firsts.size() - best, (kMostObservations - some.size()) * firsts.size() / all.size());
  for (std::size_t i = 0; i < others; ++i) take(firsts[best + i * (firsts.size() - best) / others]);
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

// What is known of trials, as a Gaussian process sees it; on average over what the function may be
// like (Snoek et al., 2012).
class BeliefInTrials {
 public:
  BeliefInTrials(const SearchSpace& space, std::span<const TriedSettings> past,
                 PhiloxSequence& random)
      : rows_(values_by_rung(past, std::max(space.size() + 1, kFewestObservations))) {
    if (rows_.rung < 0) return;
    rows_.rows = thinned(rows_.rows);
    std::vector<const Settings*> places;
    for (const ValuesByRung::Row& row : rows_.rows) places.push_back(&past[row.trial].settings);
    const auto count = std::ssize(places);
    for (const TriedSettings& one : past) {
      if (one.rung < 0) places.push_back(&one.settings);
    }
    for (const SearchParameter& parameter : space.parameters())
      known_.ordered.push_back(parameter.ordered());
    known_.points.resize(std::ssize(places), static_cast<Index>(space.size()));
    for (std::size_t i = 0; i < places.size(); ++i)
      known_.points.row(static_cast<Index>(i)) = point_of(space, *places[i]);
    known_.levels = VectorXd::Zero(std::ssize(places));
    known_.values.resize(count);
    for (Index i = 0; i < count; ++i) {
      const ValuesByRung::Row& row = rows_.rows[static_cast<std::size_t>(i)];
      known_.levels[i] = static_cast<double>(row.below);
      known_.values[i] = row.value;
    }
    normalise();
    for (const FunctionShape& shape : plausible_shapes(known_, kShapes, random)) {
      lengths_.push_back(shape.lengths);
      processes_.emplace_back(known_, shape);
    }
    for (const GaussianProcess& process : processes_) {
      double best = std::numeric_limits<double>::infinity();
      for (Index i = 0; i < count; ++i)
        best = std::min(best, process.at(known_.points.row(i)).mean);
      best_.push_back(best);
    }
  }
  BeliefInTrials(const BeliefInTrials&) = delete;
  BeliefInTrials& operator=(const BeliefInTrials&) = delete;

  // Of the rung that matters; -1: too little is known, and there is nothing to ask for.
  std::int64_t rung() const { return rows_.rung; }
  const std::vector<ValuesByRung::Row>& rows() const { return rows_.rows; }
  // Of one of the plausible shapes.
  const VectorXd& some_lengths(PhiloxSequence& random) const {
    return lengths_[random.below(lengths_.size())];
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
  // By what trials were worth last: of one that came far there are more values.
  void normalise() {
    std::vector<double> last;
    for (std::size_t i = 0; i < rows_.rows.size(); ++i) {
      if (i == 0 || rows_.rows[i].trial != rows_.rows[i - 1].trial)
        last.push_back(rows_.rows[i].value);
    }
    const double mean = mean_of(last), deviation = deviation_of(last, mean);
    known_.values.array() -= mean;
    if (deviation > 0) known_.values /= deviation;
  }

  ValuesByRung rows_;
  NoisyValues known_;
  std::vector<VectorXd> lengths_;
  std::vector<GaussianProcess> processes_;
  std::vector<double> best_;  // of what each believes of the points that have values
};

}  // namespace

ValuesByRung values_by_rung(std::span<const TriedSettings> past, std::size_t enough) {
  ValuesByRung known;
  std::vector<double> there;
  for (const TriedSettings& one : past) known.rung = std::max(known.rung, one.rung);
  for (; known.rung >= 0; --known.rung) {
    there.clear();
    for (const TriedSettings& one : past) {
      if (const double loss = loss_at(one, known.rung); std::isfinite(loss)) there.push_back(loss);
    }
    if (there.size() >= enough) break;
  }
  if (known.rung < 0) return known;

  // A rung's values, cut, and then in units of the highest.
  struct Scale {
    double worst = 0, mean = 0, deviation = 0;
    bool usable = false;
  };
  std::vector<Scale> scales(static_cast<std::size_t>(known.rung) + 1);
  for (std::int64_t rung = 0; rung <= known.rung; ++rung) {
    Scale& scale = scales[static_cast<std::size_t>(rung)];
    std::vector<double> all, of_both;
    for (const TriedSettings& one : past) {
      if (const double loss = loss_at(one, rung); std::isfinite(loss)) all.push_back(loss);
    }
    if (all.empty()) continue;
    scale.worst = worst_that_matters(all);
    for (const TriedSettings& one : past) {
      if (const double loss = loss_at(one, rung);
          std::isfinite(loss) && std::isfinite(loss_at(one, known.rung)))
        of_both.push_back(std::min(loss, scale.worst));
    }
    scale.usable = of_both.size() >= kFewestObservations || rung == known.rung;
    if (!scale.usable) continue;
    scale.mean = mean_of(of_both);
    scale.deviation = deviation_of(of_both, scale.mean);
  }
  const Scale& top = scales.back();
  for (std::size_t i = 0; i < past.size(); ++i) {
    if (has_failed(past[i])) {
      known.rows.push_back({i, 0, top.worst});
      continue;
    }
    for (std::int64_t rung = std::min(past[i].rung, known.rung); rung >= 0; --rung) {
      const Scale& scale = scales[static_cast<std::size_t>(rung)];
      const double loss = loss_at(past[i], rung);
      if (!scale.usable || !std::isfinite(loss)) continue;
      const double off =
          scale.deviation > 0 ? (std::min(loss, scale.worst) - scale.mean) / scale.deviation : 0;
      known.rows.push_back({i, known.rung - rung, top.mean + top.deviation * off});
    }
  }
  return known;
}

TrialBeliefs gp_beliefs(const SearchSpace& space, std::span<const TriedSettings> past,
                        PhiloxSequence& random) {
  const BeliefInTrials belief(space, past, random);
  TrialBeliefs beliefs{belief.rung(), {}};
  for (const TriedSettings& one : past) {
    if (belief.rung() < 0) break;
    beliefs.values.push_back(has_failed(one) ? std::numeric_limits<double>::infinity()
                                             : belief.at(point_of(space, one.settings)).mean);
  }
  return beliefs;
}

std::vector<Settings> gp_candidates(const SearchSpace& space, std::span<const TriedSettings> past,
                                    PhiloxSequence& random) {
  const BeliefInTrials belief(space, past, random);
  if (belief.rung() < 0) return {};

  // By what is believed of them, not by their values: those have noise, and the best of them is
  // better than it is.
  std::vector<std::pair<double, const Settings*>> believed;
  for (std::size_t i = 0; i < belief.rows().size(); ++i) {
    const std::size_t trial = belief.rows()[i].trial;
    if (i > 0 && trial == belief.rows()[i - 1].trial) continue;
    const Settings& settings = past[trial].settings;
    believed.emplace_back(belief.at(point_of(space, settings)).mean, &settings);
  }
  std::stable_sort(believed.begin(), believed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });

  std::vector<std::pair<Promise, Settings>> candidates;
  const auto consider = [&](Settings settings) {
    const Promise promise = belief.at(point_of(space, settings));
    candidates.emplace_back(promise, std::move(settings));
  };
  for (std::size_t i = 0; i < kAnywhere; ++i) consider(somewhere(space, random));
  for (std::size_t c = 0; c < std::min(kCenters, believed.size()); ++c) {
    for (std::size_t i = 0; i < kNear; ++i)
      consider(somewhere_near(space, *believed[c].second, belief.some_lengths(random), random));
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
