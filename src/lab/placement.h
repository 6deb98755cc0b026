// Which ranks share a node, and which of them a simulation has to play.
//
// Ranks fill the nodes in order. Ranks whose programs take the same time form a class, of which
// one, the first, is played: all data- and tensor-parallel ranks of a stage, where that changes
// nothing. It changes nothing if every rank of a class sees the same around it: the same classes on
// its node, as many members of each of its groups there, its neighbours in the pipeline as near.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/machine.h"
#include "parallel/grid.h"

namespace quintet {

enum class Fold : std::uint8_t { kNone, kData, kDataAndTensor };

class Placement {
 public:
  // As coarse as `most` allows and symmetry permits.
  Placement(const Grid& grid, std::int32_t ranks_per_node, std::int64_t shard_group, Fold most);

  Fold fold() const { return fold_; }
  std::int32_t ranks_per_node() const { return per_node_; }
  std::int32_t node_of(std::int32_t rank) const { return rank / per_node_; }
  // The rank that is played for this one.
  std::int32_t played_for(std::int32_t rank) const;
  // All that are played, in order.
  const std::vector<std::int32_t>& played() const { return played_; }
  // How many ranks a played one stands for: everywhere, and on its own node.
  std::int32_t stands_for(std::int32_t played) const;
  std::int32_t stands_for_on_node(std::int32_t played) const;
  // Nodes with the same classes on them are one type: what happens on one happens on all.
  std::int32_t node_type_of(std::int32_t played) const;
  std::int32_t node_types() const { return node_types_; }

  // How a group lies across nodes, seen from one member.
  struct Span {
    std::int32_t members = 1, nodes = 1;
    std::int32_t on_node = 1;  // members on this one's node
    std::int32_t most_on_a_node = 1, least_on_a_node = 1;
    bool operator==(const Span&) const = default;
  };
  Span span_of(std::span<const std::int32_t> ranks, std::int32_t member) const;

 private:
  bool try_fold(Fold fold, std::int64_t shard_group);
  std::size_t class_of(std::int32_t rank) const;

  const Grid grid_;
  const std::int32_t per_node_;
  Fold fold_ = Fold::kNone;
  std::vector<std::int32_t> played_;
  std::vector<std::int32_t> count_, on_node_, node_type_;  // by position in played_
  std::int32_t node_types_ = 0;
};

// Ranks on each node when a machine has so many nodes (0: as many as its file says, or as the ranks
// need). Refused where the devices do not suffice.
Result<std::int32_t> ranks_per_node(const Machine& machine, std::int64_t ranks, std::int64_t nodes);

}  // namespace quintet
