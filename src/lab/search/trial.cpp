#include "lab/search/trial.h"

#include <algorithm>

namespace quintet {

std::int64_t Trial::reached() const {
  if (failed()) return -1;
  for (auto result = rungs.rbegin(); result != rungs.rend(); ++result) {
    if (!result->running()) return result->rung;
  }
  return -1;
}

double Trial::value_at(std::int64_t rung) const {
  for (const RungResult& result : rungs) {
    if (result.rung == rung && !result.running()) return result.value;
  }
  return std::numeric_limits<double>::infinity();
}

std::vector<const Trial*> ranking(std::span<const Trial> trials, std::int64_t level) {
  std::vector<const Trial*> ranked;
  for (const Trial& trial : trials) {
    if (trial.level == level && trial.reached() >= 0) ranked.push_back(&trial);
  }
  std::sort(ranked.begin(), ranked.end(), [](const Trial* a, const Trial* b) {
    if (a->reached() != b->reached()) return a->reached() > b->reached();
    const double left = a->value_at(a->reached()), right = b->value_at(b->reached());
    return left != right ? left < right : a->id < b->id;
  });
  return ranked;
}

const Trial* best_trial(std::span<const Trial> trials) {
  std::int64_t highest = 0;
  for (const Trial& trial : trials) highest = std::max(highest, trial.level);
  for (std::int64_t level = highest; level >= 0; --level) {
    if (const auto ranked = ranking(trials, level); !ranked.empty()) return ranked[0];
  }
  return nullptr;
}

std::vector<TriedSettings> observations_of(std::span<const Trial> trials, std::int64_t level) {
  std::vector<TriedSettings> all;
  for (const Trial& trial : trials) {
    if (trial.level != level) continue;
    TriedSettings one{trial.settings, trial.reached(), 0};
    if (trial.failed()) {
      one.rung = 0;
      one.loss = std::numeric_limits<double>::infinity();
    } else if (one.rung >= 0) {
      one.loss = trial.value_at(one.rung);
      for (std::int64_t rung = 0; rung < one.rung; ++rung)
        one.earlier.push_back(trial.value_at(rung));
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace quintet
