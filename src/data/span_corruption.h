// T5's denoising objective: spans of tokens are cut out of a text and replaced by sentinels; the
// target spells out what was cut. Exact to the reference: counts, rounding, order of sentinels.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "base/result.h"

namespace quintet {

struct SpanCorruptionConfig {
  double noise_density = 0.15;
  double mean_span = 3.0;
};

// The sizes that follow from a raw length and a configuration.
struct SpanCounts {
  std::int64_t tokens = 0;  // raw tokens of one example
  std::int64_t noise = 0;   // of which are cut out
  std::int64_t spans = 0;   // in so many pieces

  std::int64_t source_length() const { return tokens - noise + spans + 1; }  // + end of sequence
  std::int64_t target_length() const { return noise + spans + 1; }
};

SpanCounts span_counts(std::int64_t tokens, const SpanCorruptionConfig& config);
// The most raw tokens whose source fits into `source_length`. Refused when a target would not fit
// into `target_length` or when the spans outnumber the sentinels.
Result<SpanCounts> fit_spans(std::int64_t source_length, std::int64_t target_length,
                             std::int64_t sentinels, const SpanCorruptionConfig& config);

// Ids that the objective inserts. Sentinels count down from `first_sentinel`, so many as there are;
// any more count up from `more`.
struct SpecialIds {
  std::int32_t eos = 1;
  std::int32_t first_sentinel = 0;
  std::int32_t downward = INT32_MAX, more = 0;

  std::int32_t sentinel(std::int32_t i) const {
    return i < downward ? first_sentinel - i : more + (i - downward);
  }
};

// Writes counts.source_length() source ids and counts.target_length() labels for counts.tokens
// tokens.
void corrupt_spans(std::span<const std::int32_t> tokens, const SpanCounts& counts,
                   const SpecialIds& ids, PhiloxSequence& random, std::span<std::int32_t> source,
                   std::span<std::int32_t> labels);

}  // namespace quintet
