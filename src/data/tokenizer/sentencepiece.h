// The one place that uses the SentencePiece library: for the kinds of model that we do not encode
// ourselves, for training models, and as the yardstick of tests and benchmarks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace quintet {

// A model loaded by the library. Safe to share between threads.
class SentencePiece {
 public:
  // `bytes`: a model file; `name`: how errors call it.
  static Result<SentencePiece> load(std::string_view bytes, const std::string& name);
  SentencePiece(SentencePiece&&) noexcept;
  SentencePiece& operator=(SentencePiece&&) noexcept;
  ~SentencePiece();

  // Replaces the contents of `ids`.
  Status encode(std::string_view text, std::vector<std::int32_t>& ids) const;
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const;

 private:
  explicit SentencePiece(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor);
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

// Trains a model with the library's own options ("input", "vocab_size", ...) and returns the bytes
// of the model file. Sentences come from the files of "input", or else from `sentences`. Quiet
// unless "minloglevel" asks for the library's messages (0: all of them).
Result<std::string> train_sentencepiece(std::map<std::string, std::string> options,
                                        std::span<const std::string> sentences = {});

}  // namespace quintet
