// The pieces of a model by number, the special ones among them, and the way back from ids to text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "data/tokenizer/model_proto.h"

namespace quintet {

// Immutable; safe to share between threads.
class Vocabulary {
 public:
  // Refuses what SentencePiece refuses (empty or repeated pieces, none or two unknown pieces, byte
  // pieces without byte fallback or missing ones) and scores that are not numbers.
  static Result<Vocabulary> create(ModelProto model, const std::string& name);

  std::int32_t size() const { return static_cast<std::int32_t>(model_.pieces.size()); }
  const Piece& piece(std::int32_t id) const { return model_.pieces[static_cast<std::size_t>(id)]; }
  std::optional<std::int32_t> find(std::string_view piece) const;
  const ModelProto& model() const { return model_; }

  std::int32_t unknown_id() const { return unknown_id_; }
  // The control piece that ends a text, or pads a batch; -1 where the model has none.
  std::int32_t eos_id() const { return eos_id_; }
  std::int32_t pad_id() const { return pad_id_; }
  // How many of the topmost pieces are sentinels, "<extra_id_0>" being the very last.
  std::int32_t sentinels() const { return sentinels_; }

  // The text that ids stand for, as SentencePiece decodes it (but for a denormalizer's rules, which
  // are the library's business). Fails on an id that the vocabulary does not have.
  Result<std::string> decode(std::span<const std::int32_t> ids) const;

 private:
  using Ids = std::unordered_map<std::string_view, std::int32_t>;  // keys point into model_

  Vocabulary() = default;
  Status index_pieces(const std::string& name);
  std::int32_t control_id(const std::string& piece) const;

  ModelProto model_;
  Ids reserved_, normal_;  // a text may be in both; then it means the reserved one
  std::int32_t unknown_id_ = -1, eos_id_ = -1, pad_id_ = -1, sentinels_ = 0;
};

// The byte that "<0xXX>" stands for.
std::optional<std::uint8_t> byte_of_piece(std::string_view piece);

}  // namespace quintet
