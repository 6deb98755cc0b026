// Notices steps whose loss or gradient norm is far above those of the steps before, and those that
// are not finite: data that is broken, or a run about to diverge. All ranks see the same loss and
// norm, to the bit, and so come to the same decision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quintet {

enum class OnSpike { kNothing, kStop, kSkip, kRewind };
OnSpike on_spike_named(const std::string& name);

struct SpikeOptions {
  OnSpike action = OnSpike::kNothing;
  double loss = 2, norm = 10;  // times the median; 0: not looked at
  std::int64_t window = 50;    // steps that the median is taken over
};

// What the steps before were like, for a checkpoint: part of a run's state.
struct RecentSteps {
  std::vector<double> losses, norms;  // the oldest first
  friend bool operator==(const RecentSteps&, const RecentSteps&) = default;
};

class SpikeWatch {
 public:
  SpikeWatch() = default;
  SpikeWatch(const SpikeOptions& options, RecentSteps recent);

  // What the next step's loss and norm must not exceed; infinite where nothing can be said yet, or
  // need not.
  struct Limits {
    float loss = 0, norm = 0;
  };
  Limits limits() const;
  // "loss 9.1 is 4.2 times the median of 50 steps", for a step that exceeds them; else nothing.
  std::string spike(double loss, double norm) const;
  // A step that was none.
  void note(double loss, double norm);

  const RecentSteps& recent() const { return recent_; }

 private:
  SpikeOptions options_;
  RecentSteps recent_;
};

}  // namespace quintet
