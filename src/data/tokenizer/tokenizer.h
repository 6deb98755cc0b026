// Text to ids and back, for any SentencePiece model. Unigram models are encoded by unigram.h, the
// others (BPE, words, characters, and unigram models of odd settings) by the SentencePiece library.
// Either way the ids are SentencePiece's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/buffer.h"
#include "base/files.h"
#include "base/result.h"
#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/unigram.h"
#include "data/tokenizer/vocabulary.h"

namespace quintet {

// Immutable; safe to share between threads.
class Tokenizer {
 public:
  // Reads a .model file.
  static Result<Tokenizer> open(const Path& path);
  // From the bytes of one; `name` is how errors call it.
  static Result<Tokenizer> create(std::string_view bytes, const std::string& name);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // 32 hexadecimal digits (XXH3, 128 bits) that stand for the model file's bytes.
  const std::string& digest() const { return digest_; }
  // Whether encoding is ours, or the library's.
  bool is_native() const { return unigram_ != nullptr; }

  Result<std::string> decode(std::span<const std::int32_t> ids) const;

 private:
  friend class Encoder;
  Tokenizer() = default;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::string digest_;
  std::shared_ptr<const UnigramModel> unigram_;   // where we encode
  std::shared_ptr<const SentencePiece> library_;  // where we do not
};

// Encodes texts one after the other. For one thread; make one for each.
class Encoder {
 public:
  // `cache_entries`: a power of two; 64 bytes each.
  explicit Encoder(const Tokenizer& tokenizer,
                   std::size_t cache_entries = UnigramEncoder::kDefaultCacheEntries);

  // Appends the ids of a text. Only the library's models can fail.
  Status encode(std::string_view text, Buffer<std::int32_t>& out);
  // Gives back the working memory that an unusually long text took.
  void trim_memory();
  // Characters outside the vocabulary in all texts so far.
  std::int64_t unknown_characters() const;

 private:
  std::unique_ptr<UnigramEncoder> unigram_;
  std::shared_ptr<const SentencePiece> library_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<std::int32_t> ids_;
  std::int64_t unknown_ = 0;
};

}  // namespace quintet
