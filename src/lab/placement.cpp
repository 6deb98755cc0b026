#include "lab/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/index.h"

namespace quintet {

Result<std::int32_t> ranks_per_node(const Machine& machine, std::int64_t ranks,
                                    std::int64_t nodes) {
  const std::int64_t devices = machine.node.devices;
  const bool gpu = machine.kind() == Device::kCuda;
  const bool given = nodes > 0;
  if (!given) {
    // Nodes are filled one after the other. A file of GPU nodes stands for as many as it takes; the
    // cores of a machine can be wanted by more ranks than it has.
    nodes = (ranks + devices - 1) / devices;
    if (!gpu) nodes = std::min(nodes, std::max<std::int64_t>(machine.node.nodes, 1));
  }
  if (gpu && ranks > nodes * devices) {
    return usage_error("{} ranks for {} node{} of {} GPUs ({}): at most {} ranks, or --nodes {}",
                       ranks, nodes, nodes == 1 ? "" : "s", devices, machine.name, nodes * devices,
                       (ranks + devices - 1) / devices);
  }
  if (given && nodes > ranks) {
    return usage_error("--nodes {} for {} rank{}: a node without a rank has nothing to do", nodes,
                       ranks, ranks == 1 ? "" : "s");
  }
  return static_cast<std::int32_t>((ranks + nodes - 1) / nodes);
}

Placement::Placement(const Grid& grid, std::int32_t ranks_per_node, std::int64_t shard_group,
                     Fold most)
    : grid_(grid), per_node_(ranks_per_node) {
  for (Fold fold : {Fold::kDataAndTensor, Fold::kData, Fold::kNone}) {
    if (fold <= most && try_fold(fold, shard_group)) return;
  }
}

std::int32_t Placement::played_for(std::int32_t rank) const {
  if (fold_ == Fold::kNone) return rank;
  const Place place = grid_.place_of(rank);
  return grid_.rank_of(0, fold_ == Fold::kData ? place.tp : 0, place.pp);
}

std::size_t Placement::class_of(std::int32_t rank) const {
  return static_cast<std::size_t>(
      std::lower_bound(played_.begin(), played_.end(), played_for(rank)) - played_.begin());
}

std::int32_t Placement::stands_for(std::int32_t played) const {
  return count_[class_of(played)];
}
std::int32_t Placement::stands_for_on_node(std::int32_t played) const {
  return on_node_[class_of(played)];
}
std::int32_t Placement::node_type_of(std::int32_t played) const {
  return node_type_[class_of(played)];
}

Placement::Span Placement::span_of(std::span<const std::int32_t> ranks, std::int32_t member) const {
  Span span;
  span.members = static_cast<std::int32_t>(ranks.size());
  std::map<std::int32_t, std::int32_t> by_node;
  for (const std::int32_t rank : ranks) ++by_node[node_of(rank)];
  span.nodes = static_cast<std::int32_t>(by_node.size());
  span.on_node = by_node[node_of(member)];
  span.most_on_a_node = span.least_on_a_node = span.on_node;
  for (const auto& [node, count] : by_node) {
    span.most_on_a_node = std::max(span.most_on_a_node, count);
    span.least_on_a_node = std::min(span.least_on_a_node, count);
  }
  return span;
}

bool Placement::try_fold(Fold fold, std::int64_t shard_group) {
  fold_ = fold;
  played_.clear();
  const std::int32_t size = grid_.size();
  for (std::int32_t rank = 0; rank < size; ++rank) {
    if (played_for(rank) == rank) played_.push_back(rank);
  }
  // 1. What is on each node, and which nodes are alike.
  const std::int32_t nodes = (size + per_node_ - 1) / per_node_;
  std::vector<std::map<std::size_t, std::int32_t>> on(index(nodes));
  std::vector<std::size_t> classes(index(size));
  for (std::int32_t rank = 0; rank < size; ++rank) {
    classes[index(rank)] = class_of(rank);
    ++on[index(node_of(rank))][classes[index(rank)]];
  }
  std::map<std::map<std::size_t, std::int32_t>, std::int32_t> types;
  std::vector<std::int32_t> type_of(index(nodes));
  for (std::int32_t node = 0; node < nodes; ++node) {
    // Unfolded, no node is another's double, even with nothing of its own.
    type_of[index(node)] =
        types.try_emplace(on[index(node)], static_cast<std::int32_t>(types.size())).first->second;
  }
  count_.assign(played_.size(), 0);
  on_node_.assign(played_.size(), 0);
  node_type_.assign(played_.size(), 0);
  node_types_ = static_cast<std::int32_t>(types.size());
  for (std::int32_t rank = 0; rank < size; ++rank) ++count_[classes[index(rank)]];
  for (std::size_t c = 0; c < played_.size(); ++c) {
    on_node_[c] = on[index(node_of(played_[c]))][c];
    node_type_[c] = type_of[index(node_of(played_[c]))];
  }
  if (fold == Fold::kNone) return true;
  // 2. Every rank of a class must see what the played one sees.
  const auto sees = [&](std::int32_t rank) {
    const Place place = grid_.place_of(rank);
    const auto along_dp = grid_.ranks_along(place, true, false, false);
    const auto along_tp = grid_.ranks_along(place, false, true, false);
    std::vector<Span> spans = {span_of(along_dp, rank), span_of(along_tp, rank)};
    if (shard_group > 1 && shard_group < grid_.dp) {
      const auto first = along_dp.begin() + place.dp / shard_group * shard_group;
      spans.push_back(span_of({first, first + shard_group}, rank));
      std::vector<std::int32_t> across;
      for (std::int64_t d = place.dp % shard_group; d < grid_.dp; d += shard_group)
        across.push_back(along_dp[index(d)]);
      spans.push_back(span_of(across, rank));
    }
    const auto near = [&](std::int32_t step) {
      const std::int32_t other =
          grid_.rank_of(place.dp, place.tp, (place.pp + step + grid_.pp) % grid_.pp);
      return node_of(other) == node_of(rank);
    };
    return std::tuple(type_of[index(node_of(rank))], std::move(spans), near(1), near(-1));
  };
  for (std::size_t c = 0; c < played_.size(); ++c) {
    const auto expected = sees(played_[c]);
    for (std::int32_t rank = 0; rank < size; ++rank) {
      if (classes[index(rank)] == c && rank != played_[c] && sees(rank) != expected) return false;
    }
  }
  return true;
}

}  // namespace quintet
