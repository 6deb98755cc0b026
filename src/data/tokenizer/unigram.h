// The unigram language model of SentencePiece, encoded by an algorithm of our own with ids equal to
// SentencePiece's (0.1.97, its optimized encoder), and several times its speed.
//
// SentencePiece runs one dynamic programme over the whole line: the best split of every prefix. A
// candidate's score is added up in double, compared with the stored best, a float, and stored as a
// float. Three things make ours fast:
//
//  1. Stretches. Between two characters that no piece has side by side, every split has a boundary.
//     There the programme's state is a single number, the score so far, and the text falls apart
//     into stretches: words, mostly.
//  2. A cache of stretches (word_cache.h). Their split hardly depends on the score so far: only
//     through the rounding of the floats. Let c be the stretch's number of characters, M a bound on
//     all scores involved and h = M * 2^-24 the largest rounding error of one addition. Then each
//     stored score is within c * h of the exact one, so where the best candidate of every position
//     on the best path leads by more than 2 * c * h, no rounding changes the path. The cache stores
//     the score so far up to which that holds; beyond it the programme runs.
//  3. A trie over characters with the scores in its nodes (trie.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "base/large_array.h"
#include "base/result.h"
#include "data/tokenizer/char_codes.h"
#include "data/tokenizer/model_proto.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/trie.h"
#include "data/tokenizer/word_cache.h"

namespace quintet {

// Immutable; safe to share between threads.
class UnigramModel {
 public:
  // Whether this encoder can take a model on. It cannot where the space mark is a suffix or no mark
  // at all, and where rules or user-defined pieces are not UTF-8.
  static bool supports(const ModelProto& model);
  static Result<UnigramModel> create(const ModelProto& model, const std::string& name);

 private:
  friend class UnigramEncoder;

  std::uint64_t find_ends(const char* block) const;
  double score_of(std::uint32_t node) const;

  Normalizer normalizer_;
  CharCodes codes_;
  Trie trie_;
  LargeArray<float> scores_;  // by id
  // User-defined pieces add a double that is no float. The trie has NaN for them, and they stay out
  // of the cache.
  std::unordered_map<std::int32_t, double> user_defined_;
  std::vector<std::uint8_t> cut_;  // by two bytes: 1 where no piece and no character has both
  float unknown_score_ = 0;
  double max_cost_ = 0;  // no candidate's score is larger in magnitude
  std::int32_t unknown_id_ = 0;
  bool byte_fallback_ = false;
  std::array<std::int32_t, 256> byte_ids_{};
};

// Encodes texts one after the other; has the cache and the working memory. For one thread.
class UnigramEncoder {
 public:
  static constexpr std::size_t kDefaultCacheEntries = std::size_t{1} << 19;

  explicit UnigramEncoder(std::shared_ptr<const UnigramModel> model,
                          std::size_t cache_entries = kDefaultCacheEntries);

  // Appends the ids of a text.
  void encode(std::string_view text, Buffer<std::int32_t>& out);
  // Gives back the working memory that an unusually long text took.
  void trim_memory();
  // Characters that no piece covers, in all texts so far.
  std::int64_t unknown_characters() const { return unknown_characters_; }

 private:
  struct Stretch;
  // A position of the dynamic programme: the best split of the characters before it.
  struct Position {
    double score;        // a float's value, kept as double
    double second;       // of the best candidate that lost; only with margins
    std::uint32_t from;  // where its last piece begins
    std::uint32_t node;  // that piece's node in the trie; 0: an unknown character
  };
  struct Token {
    std::uint32_t node, begin;  // as in Position
  };

  void encode_stretches(std::span<const Stretch> stretches, Buffer<std::int32_t>& out);
  void encode_new(const Stretch& stretch, Buffer<std::int32_t>& out);
  void encode_exactly(const char* text, std::size_t length, Buffer<std::int32_t>& out);
  void read_characters(const char* text, std::size_t length);
  template <bool kMargins>
  void run_programme(float start);
  void backtrack();
  float safe_limit() const;
  void emit(const char* text, const std::vector<Token>& tokens, Buffer<std::int32_t>& out);
  void emit_unknown(const char* text, std::size_t length, Buffer<std::int32_t>& out);

  std::shared_ptr<const UnigramModel> model_;
  WordCache cache_;
  std::int64_t unknown_characters_ = 0;

  // Of the text being encoded.
  Buffer<char> normalized_;
  float score_ = 0;             // so far
  bool after_unknown_ = false;  // the last token is an unknown one

  // Of the stretch being encoded.
  std::size_t characters_ = 0;
  Buffer<std::uint32_t> codes_, offsets_;  // of its characters; offsets_ has one more
  Buffer<Position> positions_;
  std::vector<Token> tokens_;
};

}  // namespace quintet
