#include "lab/fluid_clock.h"

#include <algorithm>

#include "base/index.h"

namespace quintet {

FluidClock::FluidClock(const Machine& machine, const Placement& placement, int threads,
                       const std::vector<RankTrace>& traces, std::vector<std::int32_t> stages,
                       const std::vector<std::vector<Work>>& work)
    : machine_(machine),
      cpu_(machine.kind() == Device::kCpu),
      threads_(threads),
      cores_(static_cast<double>(std::max<std::int64_t>(machine.node.cores, 1))),
      stages_(std::move(stages)),
      work_(work),
      ranks_(traces.size()),
      nodes_(index(placement.node_types())) {
  for (std::size_t r = 0; r < traces.size(); ++r) {
    ranks_[r].node = index(placement.node_type_of(traces[r].rank));
    ranks_[r].on_node = placement.stands_for_on_node(traces[r].rank);
    nodes_[ranks_[r].node].ranks.push_back(r);
    times_.emplace_back(traces[r].items.size());
  }
}

void FluidClock::came(Side side) {
  times_of(side).came = now_;
}

void FluidClock::start(std::int32_t id, std::span<const Side> sides) {
  if (index(id) >= activities_.size()) {
    activities_.resize(index(id) + 1);
    is_marked_.resize(index(id) + 1, false);
  }
  Activity& activity = activities_[index(id)];
  activity.sides.assign(sides.begin(), sides.end());
  activity.left = 0;
  activity.rate = 0;
  activity.since = now_;
  activity.under_way = true;
  for (const Side& side : sides) {
    activity.left = std::max(activity.left, work_of(side).seconds);
    Times& times = times_of(side);
    times.start = now_;
    for (const Side& other : sides) {
      if (stages_[index(other.rank)] != stages_[index(side.rank)])
        times.others_came = std::max(times.others_came, times_of(other).came);
    }
  }
  change(id, 1);
}

std::optional<std::int32_t> FluidClock::next() {
  refresh();
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    Activity& activity = activities_[index(event.id)];
    if (!activity.under_way || event.version != activity.version) continue;
    now_ = std::max(now_, event.at);
    settle(activity);
    activity.under_way = false;
    ++activity.version;
    for (const Side& side : activity.sides) times_of(side).end = now_;
    change(event.id, -1);
    return event.id;
  }
  return std::nullopt;
}

void FluidClock::change(std::int32_t id, int sign) {
  for (const Side& side : activities_[index(id)].sides) {
    const Work& work = work_of(side);
    Rank& rank = ranks_[index(side.rank)];
    Node& node = nodes_[rank.node];
    const bool network = work.out > 0 || work.in > 0;
    // 1. What went on until now did so under the old circumstances.
    if (sign > 0) rank.active.push_back(id);
    cpu_ || network ? mark_node(rank.node) : mark(index(side.rank));
    if (sign < 0) rank.active.erase(std::find(rank.active.begin(), rank.active.end(), id));
    // 2. The new ones.
    switch (work.what) {
      case What::kCompute:
        rank.computing += sign;
        node.computing += sign * rank.on_node;
        break;
      case What::kCommunicate:
        rank.talking += sign;
        break;
      case What::kCopyIn:
        rank.copying_in += sign;
        break;
      case What::kCopyOut:
        rank.copying_out += sign;
        break;
    }
    if (cpu_) {
      // A sum of shares that came and went leaves rounding behind; nothing active needs nothing.
      rank.thread = rank.active.empty() ? 0 : rank.thread + sign * work.thread;
      const double demand = rank.computing > 0 ? threads_ : std::clamp(rank.thread, 0.0, 1.0);
      node.cores += (demand - rank.demand) * rank.on_node;
      rank.demand = demand;
    }
    node.out += sign * work.out;
    node.in += sign * work.in;
  }
}

void FluidClock::mark(std::size_t rank) {
  for (const std::int32_t id : ranks_[rank].active) {
    if (is_marked_[index(id)]) continue;
    is_marked_[index(id)] = true;
    marked_.push_back(id);
    settle(activities_[index(id)]);
  }
}

void FluidClock::mark_node(std::size_t node) {
  for (const std::size_t rank : nodes_[node].ranks) mark(rank);
}

void FluidClock::refresh() {
  for (const std::int32_t id : marked_) {
    is_marked_[index(id)] = false;
    Activity& activity = activities_[index(id)];
    if (!activity.under_way) continue;
    const double rate = 1 / slowdown(activity);
    if (rate == activity.rate) continue;
    activity.rate = rate;
    ++activity.version;
    events_.push({now_ + activity.left / rate, id, activity.version});
  }
  marked_.clear();
}

void FluidClock::settle(Activity& activity) {
  const double passed = now_ - activity.since;
  activity.since = now_;
  if (passed <= 0) return;
  activity.left = std::max(0.0, activity.left - passed * activity.rate);
  if (!cpu_) return;
  for (const Side& side : activity.sides) {
    const Rank& rank = ranks_[index(side.rank)];
    if (rank.computing == 0 || rank.thread <= 1) continue;
    const Work& work = work_of(side);
    if (work.what == What::kCompute) {
      times_of(side).lost += passed * (1 - 1 / rank.thread);
    } else if (work.what == What::kCommunicate) {
      times_of(side).talking += passed * work.thread / rank.thread;
    }
  }
}

double FluidClock::slowdown(const Activity& activity) const {
  double most = 1;
  for (const Side& side : activity.sides)
    most = std::max(most, slowdown_of(ranks_[index(side.rank)], work_of(side)));
  return most;
}

double FluidClock::slowdown_of(const Rank& rank, const Work& work) const {
  const Node& node = nodes_[rank.node];
  double factor = 1;
  if (cpu_) {
    if (work.thread > 0) factor = std::max(1.0, rank.thread) * std::max(1.0, node.cores / cores_);
    if (work.what == What::kCompute && !work.beside.empty()) {
      // Ranks that wait for a core are not beside this one.
      const double beside = std::min(node.computing, std::max(1.0, cores_ / threads_));
      const auto at = static_cast<std::size_t>(std::max(1.0, beside + 0.5)) - 1;
      factor *= static_cast<double>(work.beside[std::min(at, work.beside.size() - 1)]);
    }
  } else {
    const SharingSection& sharing = machine_.sharing;
    const bool copying = rank.copying_in + rank.copying_out > 0;
    switch (work.what) {
      case What::kCompute:
        if (rank.talking > 0) factor *= sharing.compute_beside_communication;
        if (copying) factor *= sharing.compute_beside_copy;
        break;
      case What::kCommunicate:
        if (rank.computing > 0) factor *= sharing.communication_beside_compute;
        break;
      case What::kCopyIn:
      case What::kCopyOut:
        if (rank.computing > 0) factor *= sharing.copy_beside_compute;
        if (rank.copying_in > 0 && rank.copying_out > 0) factor *= sharing.copy_both_ways;
        break;
    }
  }
  if (work.out > 0) factor = std::max(factor, node.out);
  if (work.in > 0) factor = std::max(factor, node.in);
  return std::max(factor, 1e-3);
}

}  // namespace quintet
