// A SentencePiece model file: the protocol buffer `ModelProto`, the parts of it that encoding and
// decoding depend on. Read by a parser of our own, which trusts nothing in the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

// Values are those of the file.
enum class PieceType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

enum class ModelType : std::uint8_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

// Defaults are those of the format.
struct ModelProto {
  std::vector<Piece> pieces;

  // trainer_spec
  ModelType model_type = ModelType::kUnigram;
  bool treat_whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string eos_piece = "</s>", pad_piece = "<pad>";
  std::string unk_surface = " \xE2\x81\x87 ";  // what an unknown token decodes to

  // normalizer_spec
  std::string charsmap;  // precompiled_charsmap
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  std::string denormalizer_charsmap;  // denormalizer_spec
};

// Parses the bytes of a model file, or of a tokenizer.json (hf_tokenizer.h); `name` is how errors
// call it.
Result<ModelProto> parse_model(std::string_view bytes, const std::string& name);

// The fields above, as a model file.
std::string serialize_model(const ModelProto& model);

// One piece as it stands in a model file. A file followed by such pieces is a file with those
// pieces after its own.
std::string serialize_piece(const Piece& piece);

}  // namespace quintet
