#include "lab/search/decide.h"

#include <algorithm>
#include <cmath>

namespace quintet {
namespace {

using Kind = SearchDecision::Kind;

std::int64_t own_steps(const Trial& trial, std::size_t rung) {
  return trial.rungs[rung].steps - (rung > 0 ? trial.rungs[rung - 1].steps : 0);
}

class FirstLevel {
 public:
  FirstLevel(const SearchFile& search, std::span<const Trial> trials, std::int64_t threads)
      : search_(search), all_(trials), threads_(threads) {
    for (const Trial& trial : trials) {
      if (trial.level == 0) trials_.push_back(&trial);
    }
    spent_ = steps_begun(trials, 0);
  }

  SearchDecision next() const {
    const std::vector<TriedSettings> past = observations_of(all_, 0);
    const TrialBeliefs beliefs =
        search_.budget.rungs > 1 ? believe(search_.space, search_.sampler(), past) : TrialBeliefs();
    for (std::int64_t rung = search_.budget.rungs - 2; rung >= 0; --rung) {
      if (const Trial* trial = promotable(rung, beliefs); trial != nullptr)
        return go_on(*trial, rung + 1);
    }
    if (std::ssize(trials_) < search_.search.trials) {
      const auto settings = propose(search_.space, search_.sampler(), std::ssize(trials_), past);
      if (settings && has_room_for(*settings, 0, 0)) return {Kind::kBegin, 0, 0, 0, 0, *settings};
    }
    const bool pending = std::any_of(trials_.begin(), trials_.end(),
                                     [](const Trial* trial) { return trial->pending(); });
    if (pending) return {Kind::kWait};
    return bring_to_the_end();
  }

 private:
  bool has_room(std::int64_t steps) const {
    return search_.budget.total_steps == 0 || spent_ + steps <= search_.budget.total_steps;
  }

  // Room for settings that have had so many steps to get to a rung; to the end, as long as no trial
  // has got there: one is to.
  bool has_room_for(const Settings& settings, std::int64_t had, std::int64_t rung) const {
    const auto plan = search_.plan_of(settings, 0, threads_);
    if (!plan.ok()) return true;  // it takes no step
    const bool reached = std::any_of(trials_.begin(), trials_.end(), [&](const Trial* trial) {
      return std::ssize(trial->rungs) == search_.budget.rungs && !trial->failed();
    });
    const std::vector<std::int64_t>& steps = plan.value().rung_steps;
    return has_room((reached ? steps[static_cast<std::size_t>(rung)] : steps.back()) - had);
  }
  bool has_room_for(const Trial& trial, std::int64_t rung) const {
    return has_room_for(trial.settings, trial.rungs.back().steps, rung);
  }

  SearchDecision go_on(const Trial& trial, std::int64_t rung) const {
    return {Kind::kContinue, trial.id, rung, 0, 0, trial.settings};
  }

  // The best of a rung that is in its best share and has not gone on: by what is believed of the
  // trials further up, where something is, or else by what they are worth there.
  const Trial* promotable(std::int64_t rung, const TrialBeliefs& beliefs) const {
    std::vector<std::pair<double, const Trial*>> sorted;
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      const Trial& trial = *trials_[i];
      const bool there =
          std::ssize(trial.rungs) > rung && !trial.rungs[static_cast<std::size_t>(rung)].running();
      if (there)
        sorted.emplace_back(beliefs.rung > rung ? beliefs.values[i] : trial.value_at(rung), &trial);
    }
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second->id < b.second->id;
    });
    std::vector<const Trial*> finished;
    for (const auto& [worth, trial] : sorted) finished.push_back(trial);
    const auto ended = std::count_if(trials_.begin(), trials_.end(), [&](const Trial* trial) {
      return std::ssize(trial->rungs) == search_.budget.rungs;
    });
    const auto go_up = ended < search_.budget.spared
                           ? finished.size()
                           : finished.size() / static_cast<std::size_t>(search_.budget.reduction);
    for (std::size_t i = 0; i < go_up; ++i) {
      const Trial& trial = *finished[i];
      if (std::isfinite(trial.value_at(rung)) && std::ssize(trial.rungs) == rung + 1 &&
          has_room_for(trial, rung + 1))
        return &trial;
    }
    return nullptr;
  }

  // Halving leaves small numbers of trials on low rungs: the best goes on alone.
  SearchDecision bring_to_the_end() const {
    const auto ranked = ranking(all_, 0);
    if (ranked.empty() || ranked[0]->reached() + 1 >= search_.budget.rungs) return {Kind::kDone};
    const std::int64_t next = ranked[0]->reached() + 1;
    return has_room_for(*ranked[0], next) ? go_on(*ranked[0], next) : SearchDecision{Kind::kDone};
  }

  const SearchFile& search_;
  std::span<const Trial> all_;
  std::vector<const Trial*> trials_;
  const std::int64_t threads_;
  std::int64_t spent_ = 0;
};

// The best of the level before, at full length.
SearchDecision next_on(const SearchFile& search, std::span<const Trial> trials,
                       std::int64_t level) {
  const auto ranked = ranking(trials, level - 1);
  std::size_t begun = 0;
  bool pending = false;
  for (const Trial& trial : trials) {
    if (trial.level != level) continue;
    ++begun;
    pending = pending || trial.pending();
  }
  const auto wanted = std::min(ranked.size(), static_cast<std::size_t>(search.ladder.promote));
  if (begun < wanted) {
    const Trial& parent = *ranked[begun];
    return {Kind::kBegin, 0, 0, level, parent.id, parent.settings};
  }
  return {pending ? Kind::kWait : Kind::kDone};
}

}  // namespace

std::int64_t steps_begun(std::span<const Trial> trials, std::int64_t level) {
  std::int64_t steps = 0;
  for (const Trial& trial : trials) {
    for (std::size_t r = 0; trial.level == level && r < trial.rungs.size(); ++r)
      steps += own_steps(trial, r);
  }
  return steps;
}

SearchDecision decide(const SearchFile& search, std::span<const Trial> trials,
                      std::int64_t threads) {
  SearchDecision decision = FirstLevel(search, trials, threads).next();
  for (std::int64_t level = 1; decision.kind == Kind::kDone && level < search.levels(); ++level)
    decision = next_on(search, trials, level);
  return decision;
}

double expected_steps(const SearchFile& search, std::span<const Trial> trials,
                      std::int64_t threads) {
  // A trial in the middle stands for those to come.
  const std::vector<double> middle(search.space.size(), 0.5);
  double expected = 0;
  for (std::int64_t level = 0; level < search.levels(); ++level) {
    const auto begun = static_cast<double>(steps_begun(trials, level));
    const auto plan = search.plan_of(search.space.settings_at(middle), level, threads);
    if (!plan.ok()) {
      expected += begun;
      continue;
    }
    auto count = static_cast<double>(search.search.trials);
    if (level > 0) count = std::min(count, static_cast<double>(search.ladder.promote));
    double wanted = 0, before = 0;
    for (const std::int64_t steps : plan.value().rung_steps) {
      wanted += std::max(count, 1.0) * (static_cast<double>(steps) - before);
      before = static_cast<double>(steps);
      count = std::max(std::floor(count / static_cast<double>(search.budget.reduction)),
                       std::min(count, static_cast<double>(search.budget.spared)));
    }
    if (level == 0 && search.budget.total_steps > 0)
      wanted = std::min(wanted, static_cast<double>(search.budget.total_steps));
    expected += std::max(wanted, begun);
  }
  return expected;
}

}  // namespace quintet
