#include "train/spikes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"
#include "base/index.h"

namespace quintet {
namespace {

constexpr float kNoLimit = std::numeric_limits<float>::infinity();

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

OnSpike on_spike_named(const std::string& name) {
  if (name == "stop") return OnSpike::kStop;
  if (name == "skip") return OnSpike::kSkip;
  if (name == "rewind") return OnSpike::kRewind;
  QT_CHECK(name == "none", "on_spike = {}", name);
  return OnSpike::kNothing;
}

SpikeWatch::SpikeWatch(const SpikeOptions& options, RecentSteps recent)
    : options_(options), recent_(std::move(recent)) {
  if (options_.action == OnSpike::kNothing) recent_ = {};
  // The window may have become shorter.
  for (std::vector<double>* values : {&recent_.losses, &recent_.norms}) {
    if (std::ssize(*values) > options_.window)
      values->erase(values->begin(), values->end() - options_.window);
  }
}

SpikeWatch::Limits SpikeWatch::limits() const {
  Limits limits{kNoLimit, kNoLimit};
  if (options_.action == OnSpike::kNothing || std::ssize(recent_.losses) < options_.window)
    return limits;
  if (options_.loss > 0)
    limits.loss = static_cast<float>(options_.loss * median_of(recent_.losses));
  if (options_.norm > 0) limits.norm = static_cast<float>(options_.norm * median_of(recent_.norms));
  return limits;
}

std::string SpikeWatch::spike(double loss, double norm) const {
  if (!std::isfinite(loss) || !std::isfinite(norm))
    return fmt::format("loss {}, gradient norm {}: not finite", loss, norm);
  const Limits limits = this->limits();
  // As the program compares them: in single precision, where they come from.
  const auto above = [&](const char* what, double value, const std::vector<double>& before) {
    return fmt::format("{} {:.4g} is {:.1f} times the median of the {} steps before", what, value,
                       value / median_of(before), before.size());
  };
  if (static_cast<float>(loss) > limits.loss) return above("loss", loss, recent_.losses);
  if (static_cast<float>(norm) > limits.norm) return above("gradient norm", norm, recent_.norms);
  return "";
}

void SpikeWatch::note(double loss, double norm) {
  if (options_.action == OnSpike::kNothing) return;
  recent_.losses.push_back(loss);
  recent_.norms.push_back(norm);
  if (std::ssize(recent_.losses) <= options_.window) return;
  recent_.losses.erase(recent_.losses.begin());
  recent_.norms.erase(recent_.norms.begin());
}

}  // namespace quintet
