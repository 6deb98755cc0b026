#include "data/tokenizer/model_proto.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "data/tokenizer/hf_tokenizer.h"

namespace quintet {
namespace {

// Field numbers of the format.
enum ModelField : std::uint32_t {
  kPieces = 1,
  kTrainerSpec = 2,
  kNormalizerSpec = 3,
  kDenormalizerSpec = 5,
};
enum PieceField : std::uint32_t { kPieceText = 1, kPieceScore = 2, kPieceType = 3 };
enum TrainerField : std::uint32_t {
  kModelType = 3,
  kWhitespaceAsSuffix = 24,
  kByteFallback = 35,
  kUnkSurface = 44,
  kEosPiece = 47,
  kPadPiece = 48,
};
enum NormalizerField : std::uint32_t {
  kCharsmap = 2,
  kAddDummyPrefix = 3,
  kRemoveExtraWhitespaces = 4,
  kEscapeWhitespaces = 5,
};

enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  std::uint32_t number = 0;
  Wire wire = Wire::kVarint;
  std::uint64_t value = 0;  // of a varint or a fixed one
  std::string_view bytes;   // of kBytes
};

// Walks over the fields of one message. A broken message ends the walk with ok() false.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : rest_(bytes) {}

  std::optional<ProtoField> next() {
    if (rest_.empty()) return std::nullopt;
    ProtoField field;
    std::uint64_t tag = 0;
    if (!read_varint(tag) || tag > UINT32_MAX || tag >> 3 == 0) return fail();
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.wire = static_cast<Wire>(tag & 7);
    switch (field.wire) {
      case Wire::kVarint:
        return read_varint(field.value) ? std::optional(field) : fail();
      case Wire::kFixed64:
        return read_fixed(8, field.value) ? std::optional(field) : fail();
      case Wire::kFixed32:
        return read_fixed(4, field.value) ? std::optional(field) : fail();
      case Wire::kBytes: {
        std::uint64_t size = 0;
        if (!read_varint(size) || size > rest_.size()) return fail();
        field.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return field;
      }
    }
    return fail();  // groups (3, 4) and what does not exist (6, 7)
  }
  bool ok() const { return ok_; }

 private:
  std::optional<ProtoField> fail() {
    ok_ = false;
    rest_ = {};
    return std::nullopt;
  }
  bool read_varint(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return false;
      const auto byte = static_cast<std::uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool read_fixed(std::size_t size, std::uint64_t& value) {
    if (rest_.size() < size) return false;
    value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  bool ok_ = true;
};

// Each handler takes one field of its message; a field it does not know, or one of another wire
// type than expected, is skipped, as protocol buffers prescribe.
template <class Handler>
bool read_message(std::string_view bytes, const Handler& handler) {
  ProtoReader reader(bytes);
  bool nested_ok = true;
  while (const auto field = reader.next()) nested_ok = handler(*field) && nested_ok;
  return reader.ok() && nested_ok;
}

bool set(const ProtoField& field, bool& target) {
  if (field.wire == Wire::kVarint) target = field.value != 0;
  return true;
}
bool set(const ProtoField& field, std::string& target) {
  if (field.wire == Wire::kBytes) target = field.bytes;
  return true;
}
// An enumeration takes only values it has.
template <class Enum>
bool set(const ProtoField& field, Enum& target, Enum last) {
  const auto value = static_cast<std::int32_t>(field.value);
  if (field.wire == Wire::kVarint && value >= 1 && value <= static_cast<std::int32_t>(last)) {
    target = static_cast<Enum>(value);
  }
  return true;
}

bool read_piece(std::string_view bytes, Piece& piece) {
  return read_message(bytes, [&](const ProtoField& field) {
    switch (field.number) {
      case kPieceText:
        return set(field, piece.text);
      case kPieceScore:
        if (field.wire == Wire::kFixed32) {
          piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
        }
        return true;
      case kPieceType:
        return set(field, piece.type, PieceType::kByte);
      default:
        return true;
    }
  });
}

bool read_trainer_spec(std::string_view bytes, ModelProto& model) {
  return read_message(bytes, [&](const ProtoField& field) {
    switch (field.number) {
      case kModelType:
        return set(field, model.model_type, ModelType::kChar);
      case kWhitespaceAsSuffix:
        return set(field, model.treat_whitespace_as_suffix);
      case kByteFallback:
        return set(field, model.byte_fallback);
      case kUnkSurface:
        return set(field, model.unk_surface);
      case kEosPiece:
        return set(field, model.eos_piece);
      case kPadPiece:
        return set(field, model.pad_piece);
      default:
        return true;
    }
  });
}

bool read_normalizer_spec(std::string_view bytes, ModelProto& model) {
  return read_message(bytes, [&](const ProtoField& field) {
    switch (field.number) {
      case kCharsmap:
        return set(field, model.charsmap);
      case kAddDummyPrefix:
        return set(field, model.add_dummy_prefix);
      case kRemoveExtraWhitespaces:
        return set(field, model.remove_extra_whitespaces);
      case kEscapeWhitespaces:
        return set(field, model.escape_whitespaces);
      default:
        return true;
    }
  });
}

bool read_model(std::string_view bytes, ModelProto& model) {
  return read_message(bytes, [&](const ProtoField& field) {
    if (field.wire != Wire::kBytes) return true;
    switch (field.number) {
      case kPieces:
        return read_piece(field.bytes, model.pieces.emplace_back());
      case kTrainerSpec:
        return read_trainer_spec(field.bytes, model);
      case kNormalizerSpec:
        return read_normalizer_spec(field.bytes, model);
      case kDenormalizerSpec:
        return read_message(field.bytes, [&](const ProtoField& inner) {
          return inner.number != kCharsmap || set(inner, model.denormalizer_charsmap);
        });
      default:
        return true;
    }
  });
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void put_tag(std::string& out, std::uint32_t number, Wire wire) {
  put_varint(out, std::uint64_t{number} << 3 | static_cast<std::uint64_t>(wire));
}
void put(std::string& out, std::uint32_t number, std::string_view bytes) {
  put_tag(out, number, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}
void put(std::string& out, std::uint32_t number, std::uint64_t value) {
  put_tag(out, number, Wire::kVarint);
  put_varint(out, value);
}

}  // namespace

Result<ModelProto> parse_model(std::string_view bytes, const std::string& name) {
  if (is_hf_tokenizer(bytes)) return parse_hf_tokenizer(bytes, name);
  ModelProto model;
  if (!read_model(bytes, model) || model.pieces.empty()) {
    return bad_input(
        "{}: not a SentencePiece model, or a damaged one ({} bytes); expected a .model file as "
        "written by spm_train or `quintet tokenizer train`, or Hugging Face's tokenizer.json",
        name, bytes.size());
  }
  return model;
}

std::string serialize_piece(const Piece& piece) {
  std::string body;
  put(body, kPieceText, piece.text);
  put_tag(body, kPieceScore, Wire::kFixed32);
  const auto bits = std::bit_cast<std::uint32_t>(piece.score);
  for (unsigned shift = 0; shift < 32; shift += 8) body.push_back(static_cast<char>(bits >> shift));
  if (piece.type != PieceType::kNormal) {
    put(body, kPieceType, static_cast<std::uint64_t>(piece.type));
  }
  std::string out;
  put(out, kPieces, body);
  return out;
}

std::string serialize_model(const ModelProto& model) {
  std::string out;
  for (const Piece& piece : model.pieces) out += serialize_piece(piece);
  std::string trainer;
  put(trainer, kModelType, static_cast<std::uint64_t>(model.model_type));
  put(trainer, kWhitespaceAsSuffix, std::uint64_t{model.treat_whitespace_as_suffix});
  put(trainer, kByteFallback, std::uint64_t{model.byte_fallback});
  put(trainer, kUnkSurface, model.unk_surface);
  put(trainer, kEosPiece, model.eos_piece);
  put(trainer, kPadPiece, model.pad_piece);
  put(out, kTrainerSpec, trainer);
  std::string normalizer;
  put(normalizer, kCharsmap, model.charsmap);
  put(normalizer, kAddDummyPrefix, std::uint64_t{model.add_dummy_prefix});
  put(normalizer, kRemoveExtraWhitespaces, std::uint64_t{model.remove_extra_whitespaces});
  put(normalizer, kEscapeWhitespaces, std::uint64_t{model.escape_whitespaces});
  put(out, kNormalizerSpec, normalizer);
  if (!model.denormalizer_charsmap.empty()) {
    std::string denormalizer;
    put(denormalizer, kCharsmap, model.denormalizer_charsmap);
    put(out, kDenormalizerSpec, denormalizer);
  }
  return out;
}

}  // namespace quintet
