#include "data/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

bool is_reserved(PieceType type) {
  return type == PieceType::kUnknown || type == PieceType::kControl || type == PieceType::kByte;
}

void append_with_spaces(std::string_view piece, std::string& out) {
  while (!piece.empty()) {
    const std::size_t mark = std::min(piece.find(kSpaceMarkText), piece.size());
    out += piece.substr(0, mark);
    piece.remove_prefix(mark);
    if (piece.empty()) return;
    out += ' ';
    piece.remove_prefix(kSpaceMarkText.size());
  }
}

// Bytes that were spelled out one by one; what is not UTF-8 among them becomes U+FFFD.
void append_bytes(std::string_view bytes, std::string& out) {
  for (const char *at = bytes.data(), *end = at + bytes.size(); at < end;) {
    const Utf8Char c = decode_utf8(at, end);
    out += c.valid ? std::string_view(at, c.length) : kReplacementCharacter;
    at += c.length;
  }
}

}  // namespace

std::optional<std::uint8_t> byte_of_piece(std::string_view piece) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  const std::size_t high = kDigits.find(piece[3]), low = kDigits.find(piece[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<std::uint8_t>(high * 16 + low);
}

Result<Vocabulary> Vocabulary::create(ModelProto model, const std::string& name) {
  Vocabulary vocabulary;
  vocabulary.model_ = std::move(model);
  QT_TRY(vocabulary.index_pieces(name));
  vocabulary.eos_id_ = vocabulary.control_id(vocabulary.model_.eos_piece);
  vocabulary.pad_id_ = vocabulary.control_id(vocabulary.model_.pad_piece);
  const auto is_sentinel = [&](std::int32_t i) {
    // mT5's own model has the space mark before the name.
    std::string_view text = vocabulary.piece(vocabulary.size() - 1 - i).text;
    if (text.starts_with(kSpaceMarkText)) text.remove_prefix(kSpaceMarkText.size());
    return text == fmt::format("<extra_id_{}>", i);
  };
  while (vocabulary.sentinels_ < vocabulary.size() && is_sentinel(vocabulary.sentinels_)) {
    ++vocabulary.sentinels_;
  }
  return vocabulary;
}

Status Vocabulary::index_pieces(const std::string& name) {
  std::array<bool, 256> has_byte{};
  bool any = false;
  for (std::size_t i = 0; i < model_.pieces.size(); ++i) {
    const Piece& piece = model_.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    const auto refuse = [&](std::string_view why) {
      return bad_input("{}: piece {} (\"{}\") {}; the model is damaged", name, id, piece.text, why);
    };
    if (piece.text.empty()) return refuse("is empty");
    if (piece.text.find('\0') != std::string::npos) return refuse("contains a NUL byte");
    // Sums of scores must stay far from where floats end.
    if (!(std::abs(piece.score) < 1e15f)) return refuse("has a score that is no sensible number");
    if (!(is_reserved(piece.type) ? reserved_ : normal_).emplace(piece.text, id).second) {
      return refuse("is there twice");
    }
    any = any || !is_reserved(piece.type);
    if (piece.type == PieceType::kUnknown) {
      if (unknown_id_ >= 0) return refuse("is a second unknown piece");
      unknown_id_ = id;
    }
    if (piece.type == PieceType::kByte) {
      if (!model_.byte_fallback) return refuse("is a byte, in a model without byte fallback");
      const auto byte = byte_of_piece(piece.text);
      if (!byte) return refuse("should be a byte, written like <0x3A>");
      has_byte[*byte] = true;
    }
  }
  if (unknown_id_ < 0) return bad_input("{}: no unknown piece; the model is damaged", name);
  if (!any) return bad_input("{}: no piece that can occur in text; the model is damaged", name);
  if (model_.byte_fallback &&
      std::find(has_byte.begin(), has_byte.end(), false) != has_byte.end()) {
    return bad_input("{}: byte fallback without all of the 256 bytes; the model is damaged", name);
  }
  return {};
}

std::optional<std::int32_t> Vocabulary::find(std::string_view piece) const {
  if (const auto it = reserved_.find(piece); it != reserved_.end()) return it->second;
  if (const auto it = normal_.find(piece); it != normal_.end()) return it->second;
  return std::nullopt;
}

std::int32_t Vocabulary::control_id(const std::string& piece) const {
  const auto id = find(piece);
  return id && this->piece(*id).type == PieceType::kControl ? *id : -1;
}

Result<std::string> Vocabulary::decode(std::span<const std::int32_t> ids) const {
  std::string out, bytes;
  const bool strips = model_.add_dummy_prefix || model_.remove_extra_whitespaces;
  bool at_start = true;        // a leading space may still be dropped
  bool dropped_space = false;  // the last piece had it
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size()) {
      return bad_input("id {} is outside the vocabulary of {} pieces", id, size());
    }
    const Piece& piece = this->piece(*find(this->piece(id).text));
    if (piece.type == PieceType::kByte) {
      bytes.push_back(static_cast<char>(*byte_of_piece(piece.text)));
      continue;
    }
    append_bytes(bytes, out);
    bytes.clear();
    if (dropped_space || !out.empty()) at_start = false;
    dropped_space = false;
    if (piece.type == PieceType::kControl) continue;
    if (piece.type == PieceType::kUnknown) {
      out += model_.unk_surface;
      continue;
    }
    std::string_view text = piece.text;
    if (at_start && strips && text.starts_with(kSpaceMarkText)) {
      text.remove_prefix(kSpaceMarkText.size());
      // Where extra spaces were removed all leading ones go, else only the one that was put there.
      dropped_space = !model_.remove_extra_whitespaces;
    }
    append_with_spaces(text, out);
  }
  append_bytes(bytes, out);
  return out;
}

}  // namespace quintet
