#include "data/tokenizer/hf_tokenizer.h"

#include <array>
#include <optional>

#include "base/json.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/vocabulary.h"

namespace quintet {
namespace {

std::optional<std::string> decode_base64(std::string_view text) {
  std::array<int, 256> values{};
  values.fill(-1);
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int>(i);
  }
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

// Values of any kind where another was expected read as nothing.
const Json& member(const Json& json, const char* key) {
  static const Json kNothing;
  if (!json.is_object()) return kNothing;
  const auto it = json.find(key);
  return it == json.end() ? kNothing : *it;
}
std::string text_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : std::string();
}
bool true_in(const Json& json, const char* key) {
  const Json& value = member(json, key);
  return value.is_boolean() && value.get<bool>();
}

class Reader {
 public:
  Reader(const Json& json, const std::string& name) : json_(json), name_(name) {}

  Result<ModelProto> read() {
    const Json& model = member(json_, "model");
    if (text_of(member(model, "type")) != "Unigram") {
      return bad_input(
          "{}: a model of type \"{}\"; of Hugging Face's files, unigram models can be "
          "read",
          name_, text_of(member(model, "type")));
    }
    proto_.byte_fallback = true_in(model, "byte_fallback");
    proto_.remove_extra_whitespaces = false;
    QT_TRY(read_pieces(model));
    QT_TRY(read_added_tokens());
    QT_TRY(read_normalizer(member(json_, "normalizer")));
    QT_TRY(read_pre_tokenizer(member(json_, "pre_tokenizer")));
    if (!metaspace_) return refuse("it has no pre-tokenizer \"Metaspace\"");
    return std::move(proto_);
  }

 private:
  Error refuse(const std::string& why) const {
    return bad_input("{}: {}: not one that was a SentencePiece model; use that", name_, why);
  }

  Status read_pieces(const Json& model) {
    const Json& vocabulary = member(model, "vocab");
    if (!vocabulary.is_array()) return refuse("it has no list of pieces");
    for (const Json& entry : vocabulary) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
          !entry[1].is_number()) {
        return refuse("a piece is not a string and a number");
      }
      Piece piece{entry[0].get<std::string>(), static_cast<float>(entry[1].get<double>()),
                  PieceType::kNormal};
      if (proto_.byte_fallback && byte_of_piece(piece.text)) piece.type = PieceType::kByte;
      proto_.pieces.push_back(std::move(piece));
    }
    const Json& unknown = member(model, "unk_id");
    if (!unknown.is_number_integer() || unknown < 0 ||
        unknown >= static_cast<std::int64_t>(proto_.pieces.size())) {
      return refuse("its unknown piece is not one of its pieces");
    }
    proto_.pieces[unknown.get<std::size_t>()].type = PieceType::kUnknown;
    return {};
  }

  Status read_added_tokens() {
    for (const Json& token : member(json_, "added_tokens")) {
      const Json& id = member(token, "id");
      const std::string text = text_of(member(token, "content"));
      if (!id.is_number_integer() || id < 0 || text.empty()) {
        return refuse("an added token has no id or no content");
      }
      const PieceType type =
          true_in(token, "special") ? PieceType::kControl : PieceType::kUserDefined;
      const auto place = id.get<std::size_t>();
      if (place > proto_.pieces.size()) {
        return refuse(
            fmt::format("the added token \"{}\" leaves ids before it without pieces", text));
      }
      if (place == proto_.pieces.size()) {
        proto_.pieces.push_back({text, 0, type});
        continue;
      }
      Piece& piece = proto_.pieces[place];
      if (piece.text != text) {
        return refuse(
            fmt::format("the added token \"{}\" has the id of the piece \"{}\"", text, piece.text));
      }
      if (piece.type == PieceType::kNormal) piece.type = type;
    }
    return {};
  }

  Status read_normalizer(const Json& normalizer) {
    if (normalizer.is_null()) return {};
    const std::string type = text_of(member(normalizer, "type"));
    if (type == "Sequence") {
      for (const Json& part : member(normalizer, "normalizers")) QT_TRY(read_normalizer(part));
      return {};
    }
    if (type == "Precompiled") {
      const auto map = decode_base64(text_of(member(normalizer, "precompiled_charsmap")));
      if (!map) return refuse("its character map is not valid base64");
      proto_.charsmap = *map;
      return {};
    }
    if (type == "Replace") {
      const std::string pattern = text_of(member(member(normalizer, "pattern"), "Regex"));
      const std::string content = text_of(member(normalizer, "content"));
      if (pattern == " {2,}" && (content == " " || content == kSpaceMarkText)) {
        proto_.remove_extra_whitespaces = true;
        return {};
      }
    }
    if (type == "Strip") return {};  // part of removing extra spaces
    return refuse(fmt::format("its normalizer \"{}\"", type));
  }

  Status read_pre_tokenizer(const Json& pre) {
    if (pre.is_null()) return {};
    const std::string type = text_of(member(pre, "type"));
    if (type == "Sequence") {
      for (const Json& part : member(pre, "pretokenizers")) QT_TRY(read_pre_tokenizer(part));
      return {};
    }
    if (type == "WhitespaceSplit") {
      proto_.remove_extra_whitespaces = true;
      return {};
    }
    if (type != "Metaspace" || text_of(member(pre, "replacement")) != kSpaceMarkText) {
      return refuse(fmt::format("its pre-tokenizer \"{}\"", type));
    }
    metaspace_ = true;
    const std::string scheme = text_of(member(pre, "prepend_scheme"));
    proto_.add_dummy_prefix = scheme.empty() ? true_in(pre, "add_prefix_space") : scheme != "never";
    return {};
  }

  const Json& json_;
  const std::string& name_;
  ModelProto proto_;
  bool metaspace_ = false;
};

}  // namespace

Result<ModelProto> parse_hf_tokenizer(std::string_view bytes, const std::string& name) {
  QT_ASSIGN(const Json json, parse_json(std::string(bytes), name));
  return Reader(json, name).read();
}

}  // namespace quintet
