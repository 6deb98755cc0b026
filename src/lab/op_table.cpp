#include "lab/op_table.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace quintet {
namespace {

double log_work(const std::vector<std::int64_t>& sizes) {
  double sum = 0;
  for (const std::int64_t size : sizes) sum += std::log(static_cast<double>(size));
  return sum;
}

// The weighted geometric mean of rates, turned into seconds for an op of other sizes.
class RateMean {
 public:
  void add(const std::vector<std::int64_t>& sizes, const OpSeconds& seconds, double weight) {
    weights_ += weight;
    cold_ += weight * (log_work(sizes) - std::log(seconds.cold));
    warm_ += weight * (log_work(sizes) - std::log(seconds.warm));
  }
  OpSeconds seconds(const std::vector<std::int64_t>& sizes) const {
    const double work = log_work(sizes);
    return {std::exp(work - cold_ / weights_), std::exp(work - warm_ / weights_)};
  }

 private:
  double weights_ = 0, cold_ = 0, warm_ = 0;
};

// The one size in which two differ; -1: none, -2: several.
int only_difference(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  int found = -1;
  for (std::size_t d = 0; d < a.size(); ++d) {
    if (a[d] == b[d]) continue;
    if (found >= 0) return -2;
    found = static_cast<int>(d);
  }
  return found;
}

}  // namespace

void OpTable::add(const OpKey& key, OpSeconds seconds) {
  QT_CHECK(seconds.cold > 0 && seconds.warm > 0 &&
               static_cast<int>(key.sizes.size()) == size_count(key.kind),
           "{}: {} s", key.str(), seconds.cold);
  count_ += groups_[{key.kind, key.variant}].insert_or_assign(key.sizes, seconds).second ? 1 : 0;
}

bool OpTable::contains(const OpKey& key) const {
  return measured(key).has_value();
}

std::optional<OpSeconds> OpTable::measured(const OpKey& key) const {
  const auto group = groups_.find({key.kind, key.variant});
  if (group == groups_.end()) return std::nullopt;
  const auto entry = group->second.find(key.sizes);
  if (entry == group->second.end()) return std::nullopt;
  return entry->second;
}

std::optional<OpSeconds> OpTable::interpolated(const OpKey& key, const OpKey* without) const {
  const auto group = groups_.find({key.kind, key.variant});
  if (group == groups_.end()) return std::nullopt;
  const auto is_left_out = [&](const Sizes& sizes) {
    return without != nullptr && without->kind == key.kind && without->variant == key.variant &&
           without->sizes == sizes;
  };

  // Along each size: the nearest on both sides. The narrowest bracket counts.
  struct Bracket {
    const Entries::value_type *below = nullptr, *above = nullptr;
  };
  std::vector<Bracket> brackets(key.sizes.size());
  for (const auto& entry : group->second) {
    if (is_left_out(entry.first)) continue;
    const int d = only_difference(entry.first, key.sizes);
    if (d == -1) return entry.second;
    if (d < 0) continue;
    const auto at = static_cast<std::size_t>(d);
    auto& [below, above] = brackets[at];
    if (entry.first[at] < key.sizes[at]) {
      if (below == nullptr || entry.first[at] > below->first[at]) below = &entry;
    } else if (above == nullptr || entry.first[at] < above->first[at]) {
      above = &entry;
    }
  }
  const auto log_ratio = [](std::int64_t a, std::int64_t b) {
    return std::log(static_cast<double>(a) / static_cast<double>(b));
  };
  double narrowest = std::log(kWidestGap) + 1e-9;
  std::optional<OpSeconds> found;
  for (std::size_t d = 0; d < brackets.size(); ++d) {
    const auto& [below, above] = brackets[d];
    if (below == nullptr || above == nullptr) continue;
    const double gap = log_ratio(above->first[d], below->first[d]);
    if (gap > narrowest) continue;
    narrowest = gap;
    const double share = log_ratio(key.sizes[d], below->first[d]) / gap;
    RateMean mean;
    mean.add(below->first, below->second, 1 - share);
    mean.add(above->first, above->second, share);
    found = mean.seconds(key.sizes);
  }
  if (found) return found;
  double nearest = std::log(kHeld) + 1e-9;
  for (std::size_t d = 0; d < brackets.size(); ++d) {
    for (const Entries::value_type* entry : {brackets[d].below, brackets[d].above}) {
      if (entry == nullptr) continue;
      const double distance = std::abs(log_ratio(entry->first[d], key.sizes[d]));
      if (distance > nearest) continue;
      nearest = distance;
      RateMean mean;
      mean.add(entry->first, entry->second, 1);
      found = mean.seconds(key.sizes);
    }
  }
  if (found) return found;

  // Several sizes differ: those near in every size, if they surround the op in each.
  RateMean mean;
  std::vector<bool> below(key.sizes.size(), false), above(key.sizes.size(), false);
  for (const auto& [sizes, seconds] : group->second) {
    if (is_left_out(sizes)) continue;
    double square = 0;
    bool near = true;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const double distance = log_ratio(sizes[d], key.sizes[d]);
      near = near && std::abs(distance) <= std::log(kNear) + 1e-9;
      square += distance * distance;
    }
    if (!near) continue;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      below[d] = below[d] || sizes[d] <= key.sizes[d];
      above[d] = above[d] || sizes[d] >= key.sizes[d];
    }
    mean.add(sizes, seconds, 1 / (square * square));
  }
  const auto all = [](const std::vector<bool>& flags) {
    return std::all_of(flags.begin(), flags.end(), [](bool on) { return on; });
  };
  if (!all(below) || !all(above)) return std::nullopt;
  return mean.seconds(key.sizes);
}

}  // namespace quintet
