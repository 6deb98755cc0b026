// What the model is asked to do with a stretch of text: T5's span corruption, a prefix to be
// continued, or UL2's mixture of both. An objective turns raw tokens into an encoder's input and
// the labels of a decoder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/philox.h"
#include "base/result.h"
#include "data/span_corruption.h"

namespace quintet {

struct ObjectiveConfig {
  std::string name = "span_corruption";
  SpanCorruptionConfig spans;  // of span_corruption
  std::string prefix_split = "uniform";
  double prefix_target = 0.25;
  double ul2_regular = 2, ul2_sequential = 1, ul2_extreme = 4;

  // Adds its fields to the section at hand.
  void list(FieldList& fields);
};

// The ids that objectives put into texts.
struct ObjectiveIds {
  SpecialIds special;
  std::int64_t sentinels = 100;
  // Put before the input to tell which kind of denoising is wanted: regular, sequential, extreme;
  // -1: nothing is.
  std::int32_t modes[3] = {-1, -1, -1};
};

// One way of making an example.
struct Denoiser {
  enum class Kind : std::uint8_t { kSpans, kPrefix };
  Kind kind = Kind::kSpans;
  std::string name;            // for people: "R 3/0.15"
  SpanCorruptionConfig spans;  // of kSpans
  double target_share = 0;     // of kPrefix
  bool uniform_split = false;  // of kPrefix: drawn from all places instead
  std::int32_t mode = -1;
  double weight = 1;
  std::int64_t tokens = 0;  // raw ones of a full example

  // The lengths that `count` raw tokens become, end of sequence and mode included. `draw` decides
  // where it is left to chance; for any one draw, more tokens make neither shorter.
  std::int64_t source_length(std::int64_t count, std::uint32_t draw = 0) const;
  std::int64_t target_length(std::int64_t count, std::uint32_t draw = 0) const;
  // The longest that any draw makes.
  std::int64_t longest_source(std::int64_t count) const { return source_length(count, UINT32_MAX); }
  std::int64_t longest_target(std::int64_t count) const { return target_length(count, 0); }
  std::int64_t spans_of(std::int64_t count) const;
  static constexpr std::int64_t kLeastTokens = 2;
};

// Immutable; safe to share between threads.
class Objective {
 public:
  // Finds, for each kind of denoising, the most raw tokens whose example fits. `target_length` 0:
  // as long as the source makes it, which is then target_length(). Fails when nothing fits or when
  // spans would outnumber the sentinels.
  static Result<Objective> create(const ObjectiveConfig& config, std::int64_t source_length,
                                  std::int64_t target_length, const ObjectiveIds& ids);

  // The most raw tokens that an example takes, and the longest sequences that it becomes.
  std::int64_t tokens() const { return tokens_; }
  std::int64_t source_length() const { return source_length_; }
  std::int64_t target_length() const { return target_length_; }
  std::span<const Denoiser> denoisers() const { return denoisers_; }

  // Whether every example of that many tokens is as long as the longest.
  bool fixed_lengths() const { return denoisers_.size() == 1 && !denoisers_[0].uniform_split; }

  // Makes an example of all of `tokens`, at least Denoiser::kLeastTokens of them. `source` and
  // `labels` have the lengths that the denoiser says for `draw`.
  void apply(const Denoiser& denoiser, std::span<const std::int32_t> tokens, std::uint32_t draw,
             PhiloxSequence& random, std::span<std::int32_t> source,
             std::span<std::int32_t> labels) const;

 private:
  ObjectiveIds ids_;
  std::vector<Denoiser> denoisers_;
  std::int64_t tokens_ = 0, source_length_ = 0, target_length_ = 0;
};

}  // namespace quintet
