// Batches as the model takes them, and where they come from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

// One micro-batch on the host; row-major, all rows of equal length.
struct Batch {
  std::int64_t sequences = 0, source_length = 0, target_length = 0;
  std::vector<std::int32_t> source;   // [sequences, source_length]
  std::vector<std::int32_t> lengths;  // [sequences]; empty when every source is full
  std::vector<std::int32_t> target;   // [sequences, target_length], the decoder's input
  std::vector<std::int32_t> labels;   // [sequences, target_length]; below zero: does not count

  // Of packed batches, whose rows hold several examples; empty otherwise. Each example is a
  // segment, numbered from 1 in every row; 0 is padding. Attention must not cross segments: a
  // position sees only positions of its own segment, in cross-attention the source's of the same
  // number. Positions count from 0 in every segment.
  std::vector<std::int32_t> source_segments, source_positions;  // [sequences, source_length]
  std::vector<std::int32_t> target_segments, target_positions;  // [sequences, target_length]
  bool packed() const { return !source_segments.empty(); }

  void resize(std::int64_t new_sequences, std::int64_t new_source, std::int64_t new_target) {
    sequences = new_sequences;
    source_length = new_source;
    target_length = new_target;
    source.assign(static_cast<std::size_t>(sequences * source_length), 0);
    target.assign(static_cast<std::size_t>(sequences * target_length), 0);
    labels.assign(static_cast<std::size_t>(sequences * target_length), -1);
  }
};

// How many places hold text and not padding, of how many.
struct BatchFill {
  std::int64_t source = 0, source_places = 0, target = 0, target_places = 0;

  void add(const Batch& batch);
  static double share(std::int64_t part, std::int64_t of) {
    return of == 0 ? 1 : static_cast<double>(part) / static_cast<double>(of);
  }
};

// Refuses a batch with an id the model has no row for, naming it.
Status check_ids(const Batch& batch, std::int64_t vocab_size);

// The decoder's input: the labels one place to the right, beginning with `start`; a label that does
// not count is read as `pad`.
void shift_right(std::span<const std::int32_t> labels, std::int64_t target_length,
                 std::int32_t start, std::int32_t pad, std::span<std::int32_t> target);

// The same where rows hold several segments: each begins with `start`.
void shift_right_in_segments(std::span<const std::int32_t> labels,
                             std::span<const std::int32_t> segments, std::int64_t target_length,
                             std::int32_t start, std::int32_t pad, std::span<std::int32_t> target);

// A numbered stream of examples: number i is a pure function of the source's configuration.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // How many there are; most sources never end.
  virtual std::int64_t samples() const { return INT64_MAX; }
  // What figures are told apart by, languages mostly, and which of them an example belongs to.
  virtual std::vector<std::string> group_names() const { return {"all"}; }
  virtual std::size_t group_of(std::int64_t /*sample*/) const { return 0; }
  // Fills every row of a batch already sized, with examples first, first + 1, ...
  virtual Status fill(std::int64_t first, Batch& batch) = 0;
};

}  // namespace quintet
