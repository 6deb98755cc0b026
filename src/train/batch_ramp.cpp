#include "train/batch_ramp.h"

#include <algorithm>
#include <charconv>

namespace quintet {
namespace {

// "100=16": up to the 100th step, 16 sequences.
bool parse(const std::string& entry, std::int64_t& step, std::int64_t& sequences) {
  const char *begin = entry.data(), *end = begin + entry.size();
  const auto first = std::from_chars(begin, end, step);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '=') return false;
  const auto second = std::from_chars(first.ptr + 1, end, sequences);
  return second.ec == std::errc() && second.ptr == end && step > 0 && sequences > 0;
}

}  // namespace

Result<std::vector<BatchPhase>> batch_phases(const RunConfig& config) {
  const BatchSection& batch = config.batch;
  std::vector<BatchPhase> phases;
  if (!batch.ramp.empty() && batch.global == 0) {
    return usage_error("batch.ramp without batch.global, the size that it leads to");
  }
  std::int64_t done = 0;
  for (const std::string& entry : batch.ramp) {
    std::int64_t last = 0, sequences = 0;
    if (!parse(entry, last, sequences)) {
      return usage_error(
          "batch.ramp: \"{}\": expected a step, =, and the sequences of each step up to that one, "
          "such as \"1000=64\"",
          entry);
    }
    if (last <= done) {
      return usage_error("batch.ramp: \"{}\" comes after step {}: steps must grow", entry, done);
    }
    phases.push_back({done + 1, last, sequences});
    done = last;
  }
  phases.push_back({done + 1, config.train.steps, batch.global});
  std::erase_if(phases, [&](const BatchPhase& p) { return p.first_step > config.train.steps; });
  phases.back().last_step = config.train.steps;
  return phases;
}

const BatchPhase& phase_after(const std::vector<BatchPhase>& phases, std::int64_t step) {
  const auto at = std::find_if(phases.begin(), phases.end(),
                               [&](const BatchPhase& phase) { return step < phase.last_step; });
  return at == phases.end() ? phases.back() : *at;
}

}  // namespace quintet
