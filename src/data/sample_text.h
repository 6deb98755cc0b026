// Text made from nothing, in many languages and scripts, for tests, benchmarks and the demo. It is
// no language anybody speaks, but it loads a tokenizer as real text does: words with the
// frequencies of Zipf's law and an endless tail of rare ones, sentences with punctuation, capitals
// and numbers, scripts of one to four bytes a character, with and without spaces between words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/philox.h"

namespace quintet {

// Immutable; safe to share between threads.
class SampleText {
 public:
  // Codes of the languages there are: "en", "de", "ru", "ar", "hi", "th", "zh", "ja", ..., and
  // "code", which looks like a program.
  static std::span<const std::string_view> languages();

  explicit SampleText(std::string_view language);

  // Appends a document of about `bytes` bytes, a pure function of (language, seed, number). One
  // paragraph, no line breaks.
  void append_document(std::uint64_t seed, std::uint64_t number, std::size_t bytes,
                       std::string& out) const;

 private:
  struct Script;
  static const Script& script_of(std::string_view language);
  void append_word(std::uint64_t rank, std::string& out) const;
  std::string make_word(std::uint64_t rank) const;
  void append_sentence(PhiloxSequence& random, std::string& out) const;

  const Script* script_;
  std::uint64_t stream_;
  std::vector<std::string> onsets_, vowels_, codas_;
  // The commonest words, spelled once.
  std::string word_text_;
  std::vector<std::uint32_t> word_ends_;
};

}  // namespace quintet
