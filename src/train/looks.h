// When to time a step op by op, on a device where that costs something: a step that is looked at is
// launched op by op, with an event before and after each, instead of being replayed as a whole.
#pragma once

#include <cstdint>
#include <vector>

namespace quintet {

class Looks {
 public:
  // The share of the run that looking may cost, once there was a first look.
  static constexpr double kMostCost = 0.004;
  // And no more often than this: there is nothing new to see.
  static constexpr std::int64_t kFewestSteps = 10;

  // `first`: the step that is looked at whatever it costs, so that there is something to report.
  explicit Looks(std::int64_t first) : first_(first) {}

  bool is_due(std::int64_t step) const;
  // After a step that counts.
  void add(double seconds, bool looked);

  std::int64_t count() const { return static_cast<std::int64_t>(looked_.size()); }
  // How much longer looking made the run, as a share of it.
  double cost_share() const;

 private:
  double cost_of_one() const;

  const std::int64_t first_;
  std::vector<double> looked_, plain_;
  double total_ = 0;
  std::int64_t steps_since_ = 0;
};

}  // namespace quintet
