#include "data/tokenizer/model_tokenizer.h"

#include <algorithm>

#include "base/json.h"
#include "data/tokenizer/hf_tokenizer.h"
#include "data/tokenizer/normalizer.h"

namespace quintet {
namespace {

std::string encode_base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      out += k <= count ? kDigits[bits >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

std::string piece_or(const Vocabulary& vocabulary, std::int32_t id, const char* fallback) {
  return id < 0 ? fallback : vocabulary.piece(id).text;
}

// Pieces that stand for themselves and not for text that is cut up.
Json added_tokens(const Vocabulary& vocabulary) {
  Json tokens = Json::array();
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    const Piece& piece = vocabulary.piece(id);
    const bool special = piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
    if (!special && piece.type != PieceType::kUserDefined) continue;
    tokens.push_back({{"id", id},
                      {"content", piece.text},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", special}});
  }
  return tokens;
}

// The form of `tokenizer.json` that T5's own have.
std::string tokenizer_json(const Vocabulary& vocabulary) {
  const ModelProto& model = vocabulary.model();
  Json pieces = Json::array();
  for (const Piece& piece : model.pieces)
    pieces.push_back(Json::array({piece.text, static_cast<double>(piece.score)}));
  const Json metaspace = {{"type", "Metaspace"},
                          {"replacement", kSpaceMarkText},
                          {"prepend_scheme", model.add_dummy_prefix ? "always" : "never"},
                          {"split", true}};
  Json before = metaspace;
  if (model.remove_extra_whitespaces) {
    before = {{"type", "Sequence"},
              {"pretokenizers", Json::array({Json{{"type", "WhitespaceSplit"}}, metaspace})}};
  }
  Json end;  // nothing is added where there is no piece that ends a text
  if (vocabulary.eos_id() >= 0) {
    const std::string eos = vocabulary.piece(vocabulary.eos_id()).text;
    const auto part = [](const char* id) {
      return Json{{"Sequence", {{"id", id}, {"type_id", 0}}}};
    };
    const Json mark = {{"SpecialToken", {{"id", eos}, {"type_id", 0}}}};
    end = {{"type", "TemplateProcessing"},
           {"single", Json::array({part("A"), mark})},
           {"pair", Json::array({part("A"), mark, part("B"), mark})},
           {"special_tokens",
            {{eos,
              {{"id", eos},
               {"ids", Json::array({vocabulary.eos_id()})},
               {"tokens", Json::array({eos})}}}}}};
  }
  Json normalizer;
  if (!model.charsmap.empty())
    normalizer = {{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(model.charsmap)}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens(vocabulary)},
                     {"normalizer", normalizer},
                     {"pre_tokenizer", before},
                     {"post_processor", end},
                     {"decoder", metaspace},
                     {"model",
                      {{"type", "Unigram"},
                       {"unk_id", vocabulary.unknown_id()},
                       {"vocab", pieces},
                       {"byte_fallback", model.byte_fallback}}}};
  return to_text(json) + "\n";
}

}  // namespace

std::optional<Path> tokenizer_in(const Path& folder) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.model", "spiece.model", "tokenizer.json"})
    if (std::filesystem::exists(folder / name, ignored)) return folder / name;
  return std::nullopt;
}

Result<Path> tokenizer_at(const Path& file_or_folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(file_or_folder, ignored)) return file_or_folder;
  if (const auto found = tokenizer_in(file_or_folder)) return *found;
  return bad_input("{}: has no tokenizer.model, spiece.model or tokenizer.json",
                   file_or_folder.string());
}

std::string vocabulary_difference(const Vocabulary& a, const Vocabulary& b) {
  const std::int32_t common = std::min(a.size(), b.size());
  for (std::int32_t id = 0; id < common; ++id) {
    if (a.piece(id).text != b.piece(id).text) {
      return fmt::format("id {} is \"{}\" in one and \"{}\" in the other", id, a.piece(id).text,
                         b.piece(id).text);
    }
  }
  const Vocabulary& longer = a.size() > b.size() ? a : b;
  if (longer.size() - common > longer.sentinels())
    return fmt::format("one has {} pieces, the other {}", a.size(), b.size());
  return "";
}

std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer,
                                                   const std::string& bytes) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool is_json = is_hf_tokenizer(bytes);
  std::map<std::string, std::string> files;
  files["spiece.model"] = is_json ? serialize_model(vocabulary.model()) : bytes;
  if (vocabulary.model().model_type == ModelType::kUnigram)
    files["tokenizer.json"] = is_json ? bytes : tokenizer_json(vocabulary);
  Json sentinels = Json::array();
  for (std::int32_t i = 0; i < vocabulary.sentinels(); ++i)
    sentinels.push_back(vocabulary.piece(vocabulary.size() - 1 - i).text);
  Json special = {{"eos_token", piece_or(vocabulary, vocabulary.eos_id(), "</s>")},
                  {"unk_token", vocabulary.piece(vocabulary.unknown_id()).text},
                  {"pad_token", piece_or(vocabulary, vocabulary.pad_id(), "<pad>")},
                  {"additional_special_tokens", sentinels}};
  files["special_tokens_map.json"] = to_text(special, 2) + "\n";
  if (files.contains("tokenizer.json")) {
    // Reads that file as it is; T5's own class would put settings of its own in its place.
    special["tokenizer_class"] = "PreTrainedTokenizerFast";
  } else {
    special["tokenizer_class"] = "T5Tokenizer";
    special["extra_ids"] = 0;  // they are pieces of the model, or there are none
  }
  files["tokenizer_config.json"] = to_text(special, 2) + "\n";
  return files;
}

}  // namespace quintet
