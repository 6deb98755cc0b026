// Hugging Face's tokenizer.json of unigram models, against the model files they stand for.
#include "data/tokenizer/hf_tokenizer.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/tokenizer/model_tokenizer.h"
#include "tests/data/models.h"

namespace quintet {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

// A model as the usual converter writes it.
Json hf_json(const ModelProto& model) {
  Json vocabulary = Json::array(), added = Json::array();
  std::int64_t unknown = 0;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    vocabulary.push_back({piece.text, static_cast<double>(piece.score)});
    if (piece.type == PieceType::kUnknown) unknown = static_cast<std::int64_t>(i);
    if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) {
      added.push_back({{"id", i}, {"content", piece.text}, {"special", true}});
    }
  }
  Json json;
  json["version"] = "1.0";
  json["added_tokens"] = added;
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       Json::array({Json{{"type", "Precompiled"}, {"precompiled_charsmap", base64(model.charsmap)}},
                    Json{{"type", "Replace"},
                         {"pattern", Json{{"Regex", " {2,}"}}},
                         {"content", "\u2581"}}})}};
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  json["model"] = {{"type", "Unigram"},
                   {"unk_id", unknown},
                   {"vocab", vocabulary},
                   {"byte_fallback", model.byte_fallback}};
  return json;
}

TEST(HfTokenizer, GivesTheIdsOfTheModelItWasMadeFrom) {
  for (const bool byte_fallback : {false, true}) {
    const std::string& bytes = quick_model(3000, byte_fallback);
    const Tokenizer original = Tokenizer::create(bytes, "m").value();
    const auto converted = Tokenizer::create(to_text(hf_json(original.vocabulary().model())), "j");
    ASSERT_TRUE(converted.ok()) << converted.error().message;
    EXPECT_TRUE(converted.value().is_native());
    EXPECT_EQ(converted.value().vocabulary().eos_id(), original.vocabulary().eos_id());
    EXPECT_EQ(converted.value().vocabulary().pad_id(), original.vocabulary().pad_id());
    EXPECT_EQ(converted.value().vocabulary().sentinels(), original.vocabulary().sentinels());
    Encoder a(original), b(converted.value());
    std::vector<std::string> lines = odd_texts();
    for (const std::string& line : split_lines(sample_lines(5, 200000))) lines.push_back(line);
    for (const std::string& line : lines) {
      Buffer<std::int32_t> x, y;
      ASSERT_TRUE(a.encode(line, x).ok() && b.encode(line, y).ok());
      ASSERT_EQ(std::vector<std::int32_t>(x.span().begin(), x.span().end()),
                std::vector<std::int32_t>(y.span().begin(), y.span().end()))
          << line;
    }
  }
}

TEST(HfTokenizer, RefusesWhatWasNoSuchModel) {
  const ModelProto model = parse_model(quick_model(1000, false), "m").value();
  const Json good = hf_json(model);
  const auto says = [](const Json& json) {
    const auto parsed = parse_hf_tokenizer(to_text(json), "t.json");
    return parsed.ok() ? std::string("ok") : parsed.error().message;
  };
  EXPECT_EQ(says(good), "ok");
  const auto with = [&](const char* path, const Json& value) {
    Json json = good;
    json[Json::json_pointer(path)] = value;
    return says(json);
  };
  EXPECT_NE(with("/model/type", "BPE").find("unigram models can be read"), std::string::npos);
  EXPECT_NE(with("/model/unk_id", nullptr).find("unknown piece"), std::string::npos);
  EXPECT_NE(with("/model/unk_id", 1 << 30).find("unknown piece"), std::string::npos);
  EXPECT_NE(with("/model/vocab", 3).find("no list of pieces"), std::string::npos);
  EXPECT_NE(with("/model/vocab/5", "x").find("a string and a number"), std::string::npos);
  EXPECT_NE(with("/normalizer", Json{{"type", "NFKC"}}).find("normalizer \"NFKC\""),
            std::string::npos);
  EXPECT_NE(with("/normalizer/normalizers/0/precompiled_charsmap", "%%").find("base64"),
            std::string::npos);
  EXPECT_NE(with("/pre_tokenizer", nullptr).find("Metaspace"), std::string::npos);
  EXPECT_NE(with("/pre_tokenizer/type", "ByteLevel").find("ByteLevel"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/id", 999999).find("leaves ids"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/id", 50).find("has the id of the piece"), std::string::npos);
  EXPECT_FALSE(parse_hf_tokenizer("{", "t.json").ok());
}

// What goes with a model's weights stands for the model file it was made from.
TEST(HfTokenizer, IsWrittenAsItIsRead) {
  for (const bool byte_fallback : {false, true}) {
    std::string bytes = quick_model(3000, byte_fallback);
    for (int i = 2; i >= 0; --i)
      bytes += serialize_piece({fmt::format("<extra_id_{}>", i), 0, PieceType::kUserDefined});
    const Tokenizer tokenizer = Tokenizer::create(bytes, "model").value();
    ASSERT_EQ(tokenizer.vocabulary().sentinels(), 3);
    const auto files = tokenizer_files(tokenizer, bytes);
    EXPECT_EQ(files.at("spiece.model"), bytes);
    const Tokenizer again = Tokenizer::create(files.at("tokenizer.json"), "json").value();
    EXPECT_EQ(vocabulary_difference(tokenizer.vocabulary(), again.vocabulary()), "");
    EXPECT_EQ(again.vocabulary().sentinels(), 3);
    EXPECT_EQ(again.vocabulary().eos_id(), tokenizer.vocabulary().eos_id());
    Encoder one(tokenizer), other(again);
    std::vector<std::string> texts = split_lines(sample_lines(5, 20000));
    for (const std::string& text : odd_texts()) texts.push_back(text);
    for (const std::string& text : texts) {
      Buffer<std::int32_t> a, b;
      ASSERT_TRUE(one.encode(text, a).ok());
      ASSERT_TRUE(other.encode(text, b).ok());
      ASSERT_TRUE(std::ranges::equal(std::span(a.data(), a.size()), std::span(b.data(), b.size())))
          << text;
    }
    // From a tokenizer.json, the model file that stands for it.
    const auto from_json = tokenizer_files(again, files.at("tokenizer.json"));
    EXPECT_EQ(from_json.at("tokenizer.json"), files.at("tokenizer.json"));
    const Tokenizer model = Tokenizer::create(from_json.at("spiece.model"), "model").value();
    EXPECT_EQ(vocabulary_difference(tokenizer.vocabulary(), model.vocabulary()), "");
    const Json config = parse_json(files.at("tokenizer_config.json"), "config").value();
    EXPECT_EQ(config["additional_special_tokens"][0], "<extra_id_0>");
    EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  }
}

TEST(HfTokenizer, OnlySentinelsMayBeMissingFromOneOfTwo) {
  const std::string bytes = quick_model(3000, true);
  std::string with = bytes, other = bytes;
  for (int i = 4; i >= 0; --i)
    with += serialize_piece({fmt::format("<extra_id_{}>", i), 0, PieceType::kUserDefined});
  other += serialize_piece({"more", 0, PieceType::kNormal});
  const auto vocabulary = [](const std::string& model) {
    return Vocabulary::create(parse_model(model, "m").value(), "m").value();
  };
  EXPECT_EQ(vocabulary_difference(vocabulary(bytes), vocabulary(with)), "");
  EXPECT_EQ(vocabulary_difference(vocabulary(with), vocabulary(bytes)), "");
  EXPECT_NE(vocabulary_difference(vocabulary(bytes), vocabulary(other)), "");
  EXPECT_NE(vocabulary_difference(vocabulary(with), vocabulary(other)), "");
}

}  // namespace
}  // namespace quintet
