#include "lab/search/tpe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "lab/search/normal.h"

namespace quintet {
namespace {

constexpr std::size_t kCandidates = 48;

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
    return std::max(normal_density(off) / width_ / whole, 1e-300);
  }

  const SearchSpace& space_;
  std::vector<const Settings*> trials_;
  double width_ = 0;
};

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

std::size_t good_count(std::size_t finished) {
  return std::min<std::size_t>({(finished + 5) / 6 + 1, finished, 25});
}

std::vector<Settings> tpe_candidates(const SearchSpace& space, std::span<const TriedSettings> past,
                                     PhiloxSequence& random) {
  const std::vector<std::size_t> order = order_of(past);
  const auto finished = static_cast<std::size_t>(std::count_if(
      past.begin(), past.end(),
      [](const TriedSettings& one) { return one.rung >= 0 && std::isfinite(one.loss); }));
  const std::size_t good = good_count(finished);
  std::vector<const Settings*> best, rest;
  for (std::size_t i = 0; i < order.size(); ++i)
    (i < good ? best : rest).push_back(&past[order[i]].settings);
  const ParzenDensity of_best(space, best), of_rest(space, rest);
  std::vector<std::pair<double, Settings>> candidates;
  for (std::size_t i = 0; i < kCandidates; ++i) {
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

}  // namespace quintet
