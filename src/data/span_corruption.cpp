#include "data/span_corruption.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace quintet {
namespace {

// Walks through the parts of `total` split into `parts` non-empty parts, uniformly over all such
// splits: each of the total - 1 places between two items is a cut or not, and a cut is drawn with
// the probability that keeps every choice of parts - 1 cuts equally likely.
class Composition {
 public:
  Composition(std::int64_t total, std::int64_t parts) : places_(total - 1), cuts_(parts - 1) {}

  std::int64_t next(PhiloxSequence& random) {
    std::int64_t length = 1;
    while (places_ > 0) {
      const bool cut = random.below(static_cast<std::uint32_t>(places_)) < cuts_;
      --places_;
      if (cut) {
        --cuts_;
        return length;
      }
      ++length;
    }
    return length;
  }

 private:
  std::int64_t places_, cuts_;
};

}  // namespace

SpanCounts span_counts(std::int64_t tokens, const SpanCorruptionConfig& config) {
  // float32 and ties to even, as the reference computes them.
  const auto length = static_cast<float>(tokens);
  const auto noise =
      static_cast<std::int64_t>(std::nearbyint(length * static_cast<float>(config.noise_density)));
  SpanCounts counts;
  counts.tokens = tokens;
  counts.noise = std::clamp<std::int64_t>(noise, 1, tokens - 1);
  const float spans = static_cast<float>(counts.noise) / static_cast<float>(config.mean_span);
  counts.spans = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::nearbyint(spans)));
  // Every span needs a kept token before it.
  counts.spans = std::min({counts.spans, counts.noise, counts.tokens - counts.noise});
  return counts;
}

Result<SpanCounts> fit_spans(std::int64_t source_length, std::int64_t target_length,
                             std::int64_t sentinels, const SpanCorruptionConfig& config) {
  if (source_length < 3) {
    return usage_error("a source of {} tokens is too short for span corruption; at least 3",
                       source_length);
  }
  std::int64_t tokens = 2;
  while (span_counts(tokens + 1, config).source_length() <= source_length) ++tokens;
  const SpanCounts counts = span_counts(tokens, config);
  if (counts.target_length() > target_length) {
    return usage_error(
        "source {} with noise density {} and mean span {} makes targets of {} tokens, more than "
        "target {}; "
        "raise the target length or lower the density",
        source_length, config.noise_density, config.mean_span, counts.target_length(),
        target_length);
  }
  if (counts.spans > sentinels) {
    return usage_error(
        "source {} with noise density {} and mean span {} cuts {} spans, and there are {} "
        "sentinels; "
        "use longer spans, a lower density or shorter sources",
        source_length, config.noise_density, config.mean_span, counts.spans, sentinels);
  }
  return counts;
}

void corrupt_spans(std::span<const std::int32_t> tokens, const SpanCounts& counts,
                   const SpecialIds& ids, PhiloxSequence& random, std::span<std::int32_t> source,
                   std::span<std::int32_t> labels) {
  QT_CHECK(static_cast<std::int64_t>(tokens.size()) == counts.tokens &&
               static_cast<std::int64_t>(source.size()) == counts.source_length() &&
               static_cast<std::int64_t>(labels.size()) == counts.target_length(),
           "{} tokens, {} source, {} labels", tokens.size(), source.size(), labels.size());
  Composition kept(counts.tokens - counts.noise, counts.spans), cut(counts.noise, counts.spans);
  auto from = tokens.begin();
  auto to_source = source.begin(), to_labels = labels.begin();
  for (std::int64_t i = 0; i < counts.spans; ++i) {
    const std::int64_t keep = kept.next(random);
    to_source = std::copy_n(from, keep, to_source);
    from += keep;
    const std::int32_t sentinel = ids.sentinel(static_cast<std::int32_t>(i));
    *to_source++ = sentinel;
    *to_labels++ = sentinel;
    const std::int64_t drop = cut.next(random);
    to_labels = std::copy_n(from, drop, to_labels);
    from += drop;
  }
  *to_source = ids.eos;
  *to_labels = ids.eos;
}

}  // namespace quintet
