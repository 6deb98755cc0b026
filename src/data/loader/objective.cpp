#include "data/loader/objective.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace quintet {
namespace {

std::vector<Denoiser> denoisers_of(const ObjectiveConfig& config, const ObjectiveIds& ids) {
  const auto spans = [](const char* mode, double mean, double density, std::int32_t id,
                        double weight) {
    Denoiser denoiser;
    denoiser.name = fmt::format("{} {:g}/{:g}", mode, mean, density);
    denoiser.spans = {density, mean};
    denoiser.mode = id;
    denoiser.weight = weight;
    return denoiser;
  };
  const auto prefix = [](const char* mode, double share, std::int32_t id, double weight) {
    Denoiser denoiser;
    denoiser.kind = Denoiser::Kind::kPrefix;
    denoiser.name = fmt::format("{} {:g}", mode, share);
    denoiser.target_share = share;
    denoiser.mode = id;
    denoiser.weight = weight;
    return denoiser;
  };
  if (config.name == "span_corruption") {
    return {spans("spans", config.spans.mean_span, config.spans.noise_density, -1, 1)};
  }
  if (config.name == "prefix_lm") {
    Denoiser denoiser = prefix("prefix", config.prefix_target, -1, 1);
    if (config.prefix_split == "uniform") {
      denoiser.uniform_split = true;
      denoiser.name = "prefix, uniform";
    }
    return {denoiser};
  }
  // UL2 (Tay et al., 2022), table 1. Each class's weight is shared by its members.
  const double r = config.ul2_regular / 2, s = config.ul2_sequential, x = config.ul2_extreme / 4;
  const auto [regular, sequential, extreme] = ids.modes;
  return {spans("R", 3, 0.15, regular, r),
          spans("R", 8, 0.15, regular, r),
          prefix("S", config.prefix_target, sequential, s),
          spans("X", 3, 0.5, extreme, x),
          spans("X", 8, 0.5, extreme, x),
          spans("X", 64, 0.15, extreme, x),
          spans("X", 64, 0.5, extreme, x)};
}

std::int64_t prefix_targets(const Denoiser& denoiser, std::int64_t tokens, std::uint32_t draw) {
  if (denoiser.uniform_split) {
    // 1 to tokens - 1 of them are the prefix, each number as likely.
    return tokens - 1 -
           static_cast<std::int64_t>(std::uint64_t{draw} * static_cast<std::uint64_t>(tokens - 1) >>
                                     32);
  }
  const auto share = std::nearbyint(static_cast<double>(tokens) * denoiser.target_share);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(share), 1, tokens - 1);
}

// The most raw tokens that fit. Lengths never shrink as tokens are added.
std::int64_t fit(const Denoiser& denoiser, std::int64_t source, std::int64_t target) {
  std::int64_t tokens = 0;
  for (std::int64_t next = Denoiser::kLeastTokens;
       denoiser.longest_source(next) <= source && denoiser.longest_target(next) <= target; ++next) {
    tokens = next;
  }
  return tokens;
}

}  // namespace

void ObjectiveConfig::list(FieldList& fields) {
  fields.add("objective", name,
             "what is asked of the model: cut-out spans (T5), the rest of a text, or UL2's mixture",
             one_of({"span_corruption", "prefix_lm", "ul2"}));
  fields.add("noise_density", spans.noise_density,
             "span_corruption: share of the tokens that is cut out", between(0.001, 0.9));
  fields.add("mean_span", spans.mean_span, "span_corruption: mean length of a span",
             between(1, 1000));
  fields.add("prefix_split", prefix_split,
             "prefix_lm: where the text is split: anywhere, each place as likely (T5), or so that "
             "the targets are the share prefix_target",
             one_of({"uniform", "fixed"}));
  fields.add("prefix_target", prefix_target,
             "prefix_lm with a fixed split, and ul2's S: share of the tokens that the decoder has "
             "to continue with",
             between(0.01, 0.99));
  fields.add("ul2_regular", ul2_regular, "ul2: weight of R, short spans and little noise",
             between(0, 1e6));
  fields.add("ul2_sequential", ul2_sequential, "ul2: weight of S, the continuation of a prefix",
             between(0, 1e6));
  fields.add("ul2_extreme", ul2_extreme, "ul2: weight of X, long spans or much noise",
             between(0, 1e6));
}

std::int64_t Denoiser::source_length(std::int64_t count, std::uint32_t draw) const {
  const std::int64_t lead = mode >= 0 ? 1 : 0;
  if (kind == Kind::kSpans) return lead + span_counts(count, spans).source_length();
  return lead + count - prefix_targets(*this, count, draw) + 1;
}

std::int64_t Denoiser::target_length(std::int64_t count, std::uint32_t draw) const {
  if (kind == Kind::kSpans) return span_counts(count, spans).target_length();
  return prefix_targets(*this, count, draw) + 1;
}

std::int64_t Denoiser::spans_of(std::int64_t count) const {
  return kind == Kind::kSpans ? span_counts(count, spans).spans : 0;
}

Result<Objective> Objective::create(const ObjectiveConfig& config, std::int64_t source_length,
                                    std::int64_t target_length, const ObjectiveIds& ids) {
  if (ids.special.eos < 0) {
    return bad_input("the tokenizer has no end-of-sequence piece, which every objective needs");
  }
  Objective objective;
  objective.ids_ = ids;
  for (Denoiser& denoiser : denoisers_of(config, ids)) {
    if (denoiser.weight == 0) continue;
    const auto described = [&] {
      return fmt::format("{} (objective {}) with source {} and target {}", denoiser.name,
                         config.name, source_length, target_length);
    };
    denoiser.tokens = fit(denoiser, source_length, INT32_MAX);
    if (denoiser.tokens == 0) {
      return usage_error("{}: the source is too short for any example", described());
    }
    if (target_length > 0 && denoiser.longest_target(denoiser.tokens) > target_length) {
      // A single kind of denoising should fill its source, if it can.
      if (config.name != "ul2" && !denoiser.uniform_split) {
        return usage_error(
            "{} makes targets of {} tokens; raise the target length, or lower the source's or the "
            "noise",
            described(), denoiser.target_length(denoiser.tokens));
      }
      denoiser.tokens = fit(denoiser, source_length, target_length);
      if (denoiser.tokens == 0) {
        return usage_error("{}: the target is too short for any example", described());
      }
    }
    // More spans than sentinels would take ids of real pieces for sentinels.
    if (const std::int64_t spans = denoiser.spans_of(denoiser.tokens); spans > ids.sentinels) {
      return usage_error(
          "{} cuts {} spans out of {} tokens, and the vocabulary has {} sentinels; use longer "
          "spans, less noise or a shorter source",
          described(), spans, denoiser.tokens, ids.sentinels);
    }
    objective.tokens_ = std::max(objective.tokens_, denoiser.tokens);
    objective.source_length_ =
        std::max(objective.source_length_, denoiser.longest_source(denoiser.tokens));
    objective.target_length_ =
        std::max(objective.target_length_, denoiser.longest_target(denoiser.tokens));
    objective.denoisers_.push_back(denoiser);
  }
  if (objective.denoisers_.empty()) {
    return usage_error("objective {}: all of its weights are zero", config.name);
  }
  return objective;
}

void Objective::apply(const Denoiser& denoiser, std::span<const std::int32_t> tokens,
                      std::uint32_t draw, PhiloxSequence& random, std::span<std::int32_t> source,
                      std::span<std::int32_t> labels) const {
  const auto count = static_cast<std::int64_t>(tokens.size());
  QT_CHECK(count >= Denoiser::kLeastTokens &&
               static_cast<std::int64_t>(source.size()) == denoiser.source_length(count, draw) &&
               static_cast<std::int64_t>(labels.size()) == denoiser.target_length(count, draw),
           "{}: {} tokens, {} source, {} labels", denoiser.name, count, source.size(),
           labels.size());
  if (denoiser.mode >= 0) {
    source.front() = denoiser.mode;
    source = source.subspan(1);
  }
  if (denoiser.kind == Denoiser::Kind::kSpans) {
    corrupt_spans(tokens, span_counts(count, denoiser.spans), ids_.special, random, source, labels);
    return;
  }
  const std::size_t kept = source.size() - 1;
  std::copy_n(tokens.begin(), kept, source.begin());
  std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(kept), tokens.end(), labels.begin());
  source.back() = labels.back() = ids_.special.eos;
}

}  // namespace quintet
