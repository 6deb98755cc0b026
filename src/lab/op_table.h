// Measured times of ops, and what follows from them for ops that were not measured.
//
// Between measured neighbours of the same kind and variant the rate (product of the sizes a second,
// which is efficiency up to a factor) is interpolated geometrically over the logarithms of the
// sizes:
//   - neighbours that differ in one size only, one on each side: between the two;
//   - otherwise among all that are near in every size and surround the op: the nearer the heavier.
// Just past the last one its rate is held. What has no neighbours so near has no time here.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/op_key.h"

namespace quintet {

// Seconds of one op when none of its operands is in the device's cache, and when all that fit are.
struct OpSeconds {
  double cold = 0, warm = 0;
  bool operator==(const OpSeconds&) const = default;
};

class OpTable {
 public:
  // Neighbours that bracket an op in one size may be so far apart; those that surround it in
  // several may each be so far away; and past the last one the rate is held so far.
  static constexpr double kWidestGap = 16, kNear = 4, kHeld = 2;

  void add(const OpKey& key, OpSeconds seconds);
  bool contains(const OpKey& key) const;
  std::size_t size() const { return count_; }

  std::optional<OpSeconds> measured(const OpKey& key) const;
  // `without`: as if this key had not been measured (for tests of the interpolation itself).
  std::optional<OpSeconds> interpolated(const OpKey& key, const OpKey* without = nullptr) const;

  // All entries, in order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [group, entries] : groups_) {
      for (const auto& [sizes, seconds] : entries)
        visit(OpKey{group.first, group.second, sizes}, seconds);
    }
  }

 private:
  using Sizes = std::vector<std::int64_t>;
  using Entries = std::map<Sizes, OpSeconds>;
  std::map<std::pair<OpKind, std::string>, Entries> groups_;
  std::size_t count_ = 0;
};

}  // namespace quintet
