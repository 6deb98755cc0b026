// Text as the model sees it: SentencePiece's normalization (rules of the model, redundant spaces,
// a space before the first word), byte for byte, with the common case -- characters that no rule
// touches -- on a fast path.
//
// One difference in representation: SentencePiece writes a space as U+2581, three bytes; here it is
// the one byte ' ', which cannot otherwise occur. A U+2581 of the text itself becomes ' ', too, as
// the two are the same to SentencePiece from here on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/model_proto.h"
#include "data/tokenizer/trie.h"

namespace quintet {

inline constexpr char kSpaceMark = ' ';
inline constexpr std::string_view kSpaceMarkText = "\xE2\x96\x81";  // U+2581

// Immutable; safe to share between threads.
class Normalizer {
 public:
  // Room that normalize() leaves after the text, so that readers may load past its end.
  static constexpr std::size_t kPadding = 128;

  // For models with escape_whitespaces and without treat_whitespace_as_suffix. All replacements and
  // user-defined pieces must be UTF-8, so that what comes out is.
  static Result<Normalizer> create(const ModelProto& model, const std::string& name);

  // Replaces the contents of `out`. The kPadding bytes after it are readable.
  void normalize(std::string_view text, Buffer<char>& out) const;

 private:
  // What a character means to normalization, as bits.
  enum Class : std::uint8_t {
    kPlain = 0,
    kRule = 1,     // a rule or a user-defined piece begins with it
    kStarts = 2,   // a rule begins with it and at least one more character...
    kExtends = 4,  // ...and this is such a character
    kSpace = 8,    // U+0020
  };
  struct Prefix {
    std::size_t length = 0;  // bytes of the text...
    std::string_view text;   // ...and what they become
  };
  class Writer;

  void classify();
  void classify_extenders(const std::vector<CharsMap::Cursor>& starters);
  std::uint8_t class_of(char32_t code) const {
    return code < classes_.size() ? classes_[code] : kRule | kExtends;
  }
  // What the text at `at` becomes, one rule or one character at a time.
  Prefix normalize_prefix(const char* at, const char* end) const;

  bool add_dummy_prefix_ = true, remove_extra_whitespaces_ = true;
  CharsMap charsmap_;
  Trie symbols_;                           // user-defined pieces, which no rule may touch
  std::array<bool, 256> symbol_begins_{};  // by their first byte
  std::vector<std::uint8_t> classes_;      // of U+0000 to U+FFFF; beyond, look closely
  bool ascii_is_clean_ = false;  // no rule but for control characters, and none extends one
};

}  // namespace quintet
