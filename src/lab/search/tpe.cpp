#include "lab/search/tpe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace quintet {
namespace {

constexpr std::size_t kJointCandidates = 48;
constexpr std::size_t kSingleCandidates = 24;  // of each parameter
constexpr std::size_t kProposals = 8;          // in case the first was tried before

double normal_below(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// The inverse of normal_below by bisection: no table to get wrong, and nothing here is hot.
double normal_quantile(double probability) {
  double low = -9, high = 9;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (normal_below(middle) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

// A density over one parameter's unit interval: a sum of kernels, one for each trial and a flat
// one.
class ParzenLine {
 public:
  ParzenLine(const SearchParameter& parameter, const std::vector<const Settings*>& trials)
      : parameter_(parameter) {
    for (const Settings* trial : trials) {
      if (const auto value = trial->find(parameter.key); value != trial->end())
        centers_.push_back(parameter.cell_of(value->second).middle());
    }
    if (!parameter.ordered()) return;
    std::sort(centers_.begin(), centers_.end());
    // As wide as the gap to the farther neighbour: narrow where trials gather, wide where they are
    // rare; never so narrow that a few trials become needles. The flat kernel is a neighbour, too.
    std::vector<double> all = centers_;
    all.insert(std::upper_bound(all.begin(), all.end(), 0.5), 0.5);
    const double least = 1 / std::min(100.0, 1 + static_cast<double>(all.size()));
    for (const double center : centers_) {
      const auto at = std::lower_bound(all.begin(), all.end(), center) - all.begin();
      const auto i = static_cast<std::size_t>(at);
      const double left = i > 0 ? center - all[i - 1] : 0;
      const double right = i + 1 < all.size() ? all[i + 1] - center : 0;
      widths_.push_back(std::clamp(std::max(left, right), least, 1.0));
    }
  }

  double draw(PhiloxSequence& random) const {
    const auto which =
        static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(centers_.size() + 1)));
    const double uniform = random.uniform();
    if (which == centers_.size()) return uniform;
    if (!parameter_.ordered()) return centers_[which];
    const double center = centers_[which], width = widths_[which];
    const double from = normal_below(-center / width), to = normal_below((1 - center) / width);
    const double at = center + width * normal_quantile(from + (to - from) * uniform);
    return std::clamp(at, 0.0, 1 - 0x1p-32);
  }

  double at(const TomlScalar& value) const {
    const UnitCell cell = parameter_.cell_of(value);
    double sum = 1;  // the flat kernel
    for (std::size_t i = 0; i < centers_.size(); ++i) sum += kernel(i, cell);
    return sum / static_cast<double>(centers_.size() + 1);
  }

 private:
  double kernel(std::size_t i, const UnitCell& cell) const {
    const double center = centers_[i];
    if (!parameter_.ordered())
      return center > cell.low && center < cell.high ? static_cast<double>(parameter_.levels()) : 0;
    const double width = widths_[i];
    const double whole = normal_below((1 - center) / width) - normal_below(-center / width);
    if (cell.high > cell.low) {
      const double share =
          normal_below((cell.high - center) / width) - normal_below((cell.low - center) / width);
      return share / (cell.high - cell.low) / whole;
    }
    const double off = (cell.low - center) / width;
    constexpr double kRootOfTwoPi = 2.5066282746310002;
    return std::exp(-off * off / 2) / (kRootOfTwoPi * width) / whole;
  }

  const SearchParameter& parameter_;
  std::vector<double> centers_, widths_;
};

// A sum of products of kernels, one product for each trial, and a flat one.
class ParzenDensity {
 public:
  ParzenDensity(const SearchSpace& space, std::vector<const Settings*> trials)
      : space_(space), trials_(std::move(trials)) {
    const auto count = static_cast<double>(trials_.size() + 1);
    const auto dimensions = static_cast<double>(space.size());
    // Scott's rule, on an interval of length one whose points spread over some fifth of it; never
    // so narrow that a few trials become needles.
    width_ = std::max(0.2 * std::pow(count, -1 / (dimensions + 4)), 1 / std::min(100.0, 1 + count));
  }

  double log_of(const Settings& settings) const {
    std::vector<double> logs = {0};  // the flat kernel
    for (const Settings* trial : trials_) {
      double sum = 0;
      for (const SearchParameter& parameter : space_.parameters()) {
        const auto at = settings.find(parameter.key), center = trial->find(parameter.key);
        // Where only one of them has a value for it, the kernel says nothing about it.
        if (at == settings.end() || center == trial->end()) continue;
        sum += std::log(kernel(parameter, center->second, at->second));
      }
      logs.push_back(sum);
    }
    const double most = *std::max_element(logs.begin(), logs.end());
    double sum = 0;
    for (const double log : logs) sum += std::exp(log - most);
    return most + std::log(sum / static_cast<double>(logs.size()));
  }

  Settings draw(PhiloxSequence& random) const {
    const std::uint32_t which = random.below(static_cast<std::uint32_t>(trials_.size() + 1));
    const Settings* trial = which < trials_.size() ? trials_[which] : nullptr;
    std::vector<double> units;
    for (const SearchParameter& parameter : space_.parameters()) {
      const double uniform = random.uniform(), other = random.uniform();
      const auto center =
          trial == nullptr ? Settings::const_iterator() : trial->find(parameter.key);
      if (trial == nullptr || center == trial->end()) {
        units.push_back(uniform);
      } else if (!parameter.ordered()) {
        const bool stays = uniform < stay();
        units.push_back(stays ? parameter.cell_of(center->second).middle() : other);
      } else {
        const double middle = parameter.cell_of(center->second).middle();
        const double from = normal_below(-middle / width_),
                     to = normal_below((1 - middle) / width_);
        const double at = middle + width_ * normal_quantile(from + (to - from) * uniform);
        units.push_back(std::clamp(at, 0.0, 1 - 0x1p-32));
      }
    }
    return space_.settings_at(units);
  }

 private:
  // Of a choice without order: the probability that its kernel keeps to its own value; the rest is
  // shared out evenly.
  double stay() const {
    return static_cast<double>(trials_.size()) / static_cast<double>(trials_.size() + 1);
  }

  // A density over the unit interval.
  double kernel(const SearchParameter& parameter, const TomlScalar& center,
                const TomlScalar& at) const {
    if (!parameter.ordered()) {
      return 1 - stay() + (center == at ? stay() * static_cast<double>(parameter.levels()) : 0);
    }
    const double middle = parameter.cell_of(center).middle();
    const double whole = normal_below((1 - middle) / width_) - normal_below(-middle / width_);
    const UnitCell cell = parameter.cell_of(at);
    if (cell.high > cell.low) {
      const double share =
          normal_below((cell.high - middle) / width_) - normal_below((cell.low - middle) / width_);
      return std::max(share / (cell.high - cell.low) / whole, 1e-300);
    }
    const double off = (cell.low - middle) / width_;
    constexpr double kRootOfTwoPi = 2.5066282746310002;
    return std::max(std::exp(-off * off / 2) / (kRootOfTwoPi * width_) / whole, 1e-300);
  }

  const SearchSpace& space_;
  std::vector<const Settings*> trials_;
  double width_ = 0;
};

// The best and the others, by what is known of them.
struct ParzenGroups {
  std::vector<const Settings*> best, rest;
};

ParzenGroups grouped(std::span<const TriedSettings> past, std::size_t good) {
  const std::vector<std::size_t> order = order_of(past);
  ParzenGroups groups;
  for (std::size_t i = 0; i < order.size(); ++i)
    (i < good ? groups.best : groups.rest).push_back(&past[order[i]].settings);
  return groups;
}

std::size_t finished_count(std::span<const TriedSettings> past) {
  return static_cast<std::size_t>(std::count_if(
      past.begin(), past.end(),
      [](const TriedSettings& one) { return one.rung >= 0 && std::isfinite(one.loss); }));
}

}  // namespace

std::vector<std::size_t> order_of(std::span<const TriedSettings> past) {
  std::vector<std::size_t> order(past.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Finished, then failed, then running; then by rung, loss and age.
  const auto key = [&](std::size_t i) {
    const TriedSettings& one = past[i];
    const bool running = one.rung < 0, failed = !running && !std::isfinite(one.loss);
    return std::tuple(running  ? 2
                      : failed ? 1
                               : 0,
                      running || failed ? 0 : -one.rung, running || failed ? 0.0 : one.loss, i);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

std::vector<Settings> joint_proposals(const SearchSpace& space, std::span<const TriedSettings> past,
                                      PhiloxSequence& random) {
  const std::size_t finished = finished_count(past);
  const ParzenGroups groups =
      grouped(past, std::min<std::size_t>({(finished + 5) / 6 + 1, finished, 25}));
  const ParzenDensity of_best(space, groups.best), of_rest(space, groups.rest);
  std::vector<std::pair<double, Settings>> candidates;
  for (std::size_t i = 0; i < kJointCandidates; ++i) {
    Settings settings = of_best.draw(random);
    const double promise = of_best.log_of(settings) - of_rest.log_of(settings);
    candidates.emplace_back(promise, std::move(settings));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Settings> sorted;
  for (auto& [promise, settings] : candidates) sorted.push_back(std::move(settings));
  return sorted;
}

std::vector<Settings> single_proposals(const SearchSpace& space,
                                       std::span<const TriedSettings> past,
                                       PhiloxSequence& random) {
  const std::size_t finished = finished_count(past);
  const ParzenGroups groups = grouped(past, std::min<std::size_t>((finished + 9) / 10, 25));
  std::vector<Settings> proposals;
  for (std::size_t p = 0; p < kProposals; ++p) {
    std::vector<double> units;
    for (const SearchParameter& parameter : space.parameters()) {
      const ParzenLine of_best(parameter, groups.best), of_rest(parameter, groups.rest);
      double chosen = 0, promise = -1;
      for (std::size_t c = 0; c < kSingleCandidates; ++c) {
        const double unit = of_best.draw(random);
        const TomlScalar value = parameter.value_at(unit);
        const double ratio = of_best.at(value) / of_rest.at(value);
        if (ratio <= promise) continue;
        promise = ratio;
        chosen = unit;
      }
      units.push_back(chosen);
    }
    proposals.push_back(space.settings_at(units));
  }
  return proposals;
}

}  // namespace quintet
