// In which order a run takes its samples: one batch after the other, but for those that it leaves
// out. Which were left out, and why, is part of a run's state: whoever resumes it goes on the same
// way, and people can tell what a model has not seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

struct SampleRange {
  std::int64_t begin = 0, end = 0;  // samples begin, ..., end - 1
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

struct SkippedSamples {
  SampleRange samples;
  std::int64_t step = 0;  // the step they would have been for
  std::string why;        // "spike", "rewind", "asked"
  friend bool operator==(const SkippedSamples&, const SkippedSamples&) = default;
};

// From "57, 60-64": the samples of these batches of `batch` samples each, batch 1 being the first
// of the data. In order, none twice.
Result<std::vector<SampleRange>> parse_batches(const std::string& text, std::int64_t batch);

class SampleOrder {
 public:
  SampleOrder() = default;
  // Batches of `batch` samples from `first` on; one that holds any sample of `left_out` (in order)
  // is left out whole.
  SampleOrder(std::int64_t first, std::int64_t batch, const std::vector<SampleRange>& left_out);

  // The first sample of the batch for step 0, 1, ... counted from here.
  std::int64_t begin_of(std::int64_t step) const;

 private:
  std::int64_t first_ = 0, batch_ = 1;
  std::vector<std::int64_t> left_out_;  // numbers of batches counted from here, in order
};

}  // namespace quintet
