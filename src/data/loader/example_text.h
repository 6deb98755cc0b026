// Examples as people can read them: ids back to text, and what was cut out put back in its place.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/corpus/manifest.h"
#include "data/tokenizer/vocabulary.h"

namespace quintet {

class ExampleText {
 public:
  // `vocabulary` must outlive it.
  ExampleText(const Vocabulary& vocabulary, const SpecialTokens& special)
      : vocabulary_(vocabulary), special_(special) {}
  // Sentinels that a run has beyond the corpus's: so many, from this id on.
  void add_sentinels(std::int32_t first, std::int64_t count) {
    more_ = first;
    more_count_ = static_cast<std::int32_t>(count);
  }

  // Piece by piece, sentinels by name. Control characters become spaces, so that no text can play
  // tricks on a terminal.
  std::string readable(std::span<const std::int32_t> ids) const;
  // The text that an example was made of, with what the decoder has to find in [brackets].
  // `source` and `labels` are those of one example, without padding.
  std::string with_spans(std::span<const std::int32_t> source,
                         std::span<const std::int32_t> labels) const;

 private:
  bool is_sentinel(std::int32_t id) const { return number_of(id) >= 0; }
  // Of a sentinel, from 0; below 0: it is none.
  std::int32_t number_of(std::int32_t id) const {
    if (id <= special_.first_sentinel && id > special_.first_sentinel - special_.sentinels) {
      return special_.first_sentinel - id;
    }
    return id >= more_ && id - more_ < more_count_ ? special_.sentinels + id - more_ : -1;
  }
  std::span<const std::int32_t> without_end(std::span<const std::int32_t> ids) const;

  const Vocabulary& vocabulary_;
  SpecialTokens special_;
  std::int32_t more_ = 0, more_count_ = 0;
};

}  // namespace quintet
