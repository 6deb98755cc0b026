#include "train/looks.h"

#include <algorithm>

namespace quintet {
namespace {

double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

double Looks::cost_of_one() const {
  return looked_.empty() || plain_.empty() ? 0 : std::max(0.0, middle(looked_) - middle(plain_));
}

bool Looks::is_due(std::int64_t step) const {
  if (looked_.empty()) return step >= first_;
  if (steps_since_ < kFewestSteps) return false;
  return static_cast<double>(looked_.size() + 1) * cost_of_one() <= kMostCost * total_;
}

void Looks::add(double seconds, bool looked) {
  (looked ? looked_ : plain_).push_back(seconds);
  total_ += seconds;
  steps_since_ = looked ? 0 : steps_since_ + 1;
}

double Looks::cost_share() const {
  return total_ > 0 ? static_cast<double>(looked_.size()) * cost_of_one() / total_ : 0;
}

}  // namespace quintet
