// Ids equal to the SentencePiece library's: random models and rules made to be difficult, random
// and damaged texts.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "tests/data/models.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

// A random model over a small alphabet: pieces overlap in all ways, and scores are chosen to tie,
// nearly tie, or be extreme.
class RandomModel {
 public:
  explicit RandomModel(std::uint64_t seed) : random_(seed, stream_of("random model")) {
    const std::vector<std::string> letters = {
        "a",          "b", "c", "\u2581", "\u00E9", "\u0436", "\u4E2D", "\u0301",
        "\U0001F600", ".", "1", "e",      "\u304B", "\u3099", "<",      ">"};
    proto_.add_dummy_prefix = chance(80);
    proto_.remove_extra_whitespaces = chance(70);
    proto_.byte_fallback = chance(40);
    if (chance(60)) proto_.charsmap = nmt_nfkc();
    proto_.pieces = {{"<unk>", 0, PieceType::kUnknown}, {"</s>", 0, PieceType::kControl}};
    for (unsigned byte = 0; proto_.byte_fallback && byte < 256; ++byte) {
      proto_.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, PieceType::kByte});
    }
    const std::uint32_t score_kind = random_.below(6);
    std::map<std::string, bool> seen;
    for (std::uint32_t i = 0, count = 5 + random_.below(120); i < count; ++i) {
      std::string text;
      for (std::uint32_t k = 0, length = 1 + random_.below(5); k < length; ++k) {
        text += letters[random_.below(static_cast<std::uint32_t>(letters.size()))];
      }
      if (chance(2)) text += "\xE2";  // not UTF-8: matches nothing
      if (chance(2)) text += " ";
      if (!seen.emplace(text, true).second) continue;
      PieceType type = PieceType::kNormal;
      if (chance(4)) type = is_valid(text) ? PieceType::kUserDefined : type;
      if (chance(4)) type = PieceType::kUnused;
      proto_.pieces.push_back({text, score(score_kind, text.size()), type});
    }
    for (const Piece& piece : proto_.pieces) {
      if (piece.type == PieceType::kNormal) return;
    }
    proto_.pieces.push_back({"q", -1});
  }

  std::string bytes() const { return serialize_model(proto_); }
  std::string text() {
    static const std::vector<std::string> kOther = {
        " ",      "  ",     "x",        "\u00A0",
        "\t",     "\xff",   "\xe4\xb8", std::string(1, '\0'),
        "\u00A8", "\uFF21", "\u30CF",   "\u1100",
        "\u1161", "\u2581", "\u200B"};
    std::string out;
    for (std::uint32_t i = 0, count = random_.below(60); i < count; ++i) {
      if (chance(15)) {
        out += kOther[random_.below(static_cast<std::uint32_t>(kOther.size()))];
      } else {
        out += proto_.pieces[random_.below(static_cast<std::uint32_t>(proto_.pieces.size()))].text;
      }
    }
    // Sometimes long, so that the score so far is large.
    if (chance(10)) {
      const std::string once = out;
      while (out.size() < 20000 && !once.empty()) out += once;
    }
    return out;
  }

 private:
  bool chance(std::uint32_t percent) { return random_.below(100) < percent; }
  static bool is_valid(const std::string& text) {
    return text.find("\xE2\x20") == std::string::npos && text.back() != '\xE2';
  }
  float score(std::uint32_t kind, std::size_t length) {
    const auto size = static_cast<float>(length);
    switch (kind) {
      case 0:  // exact ties everywhere
        return -size;
      case 1:
        return -0.5f * static_cast<float>(1 + random_.below(4));
      case 2:  // ties but for the last digits
        return -size * (1 + static_cast<float>(random_.below(5)) * 1e-6f);
      case 3:  // like a trained model
        return -3 - 12 * static_cast<float>(random_.uniform());
      case 4:  // positive ones, too
        return 5 * static_cast<float>(random_.uniform()) - 2;
      default:  // tiny and huge
        return -std::exp(30 * static_cast<float>(random_.uniform()) - 15);
    }
  }

  PhiloxSequence random_;
  ModelProto proto_;
};

TEST(TokenizerFuzz, RandomModelsOnRandomTexts) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomModel model(seed);
    SCOPED_TRACE("model " + std::to_string(seed));
    Pair pair(model.bytes(), 64);
    for (int i = 0; i < 60; ++i) pair.expect_same(model.text());
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(TokenizerFuzz, RandomNormalizationRules) {
  // Rules of up to three characters from a small alphabet, spaces among them, to as many or none.
  const TemporaryFolder folder;
  const std::vector<char32_t> alphabet = {U'a',  U'b',   U'c',    U' ',   0xE9,
                                          0x301, 0x4E2D, 0x1F600, 0x2581, U'\t'};
  PhiloxSequence random(5, 6);
  const auto character = [&] {
    return alphabet[random.below(static_cast<std::uint32_t>(alphabet.size()))];
  };
  const auto sentences = split_lines(sample_lines(3, 1 << 12));
  for (int i = 0; i < 40; ++i) {
    std::map<std::u32string, std::u32string> rules;
    for (std::uint32_t k = 0, count = 1 + random.below(12); k < count; ++k) {
      std::u32string from, to;
      for (std::uint32_t n = 0, length = 1 + random.below(3); n < length; ++n) from += character();
      for (std::uint32_t n = 0, length = random.below(4); n < length; ++n) to += character();
      rules[from] = to;
    }
    std::string table;
    const auto put = [&](const std::u32string& text) {
      for (const char32_t code : text) table += fmt::format("{:X} ", static_cast<unsigned>(code));
      if (!text.empty()) table.pop_back();
    };
    for (const auto& [from, to] : rules) {
      put(from);
      table += '\t';
      put(to);
      table += '\n';
    }
    const Path path = folder.path() / "rules.tsv";
    ASSERT_TRUE(write_file(path, table).ok());
    const auto model =
        train_sentencepiece({{"vocab_size", "400"},
                             {"hard_vocab_limit", "false"},
                             {"character_coverage", "0.98"},
                             {"normalization_rule_tsv", path.string()},
                             {"remove_extra_whitespaces", i % 4 == 0 ? "false" : "true"}},
                            sentences);
    ASSERT_TRUE(model.ok()) << model.error().message;
    SCOPED_TRACE("rules:\n" + table);
    Pair pair(model.value());
    ASSERT_TRUE(pair.tokenizer.is_native());
    for (int n = 0; n < 200; ++n) {
      std::string text;
      for (std::uint32_t k = 0, length = random.below(20); k < length; ++k) {
        append_utf8(random.below(3) == 0 ? U' ' : character(), text);
      }
      if (n % 10 == 0)
        text.insert(random.below(static_cast<std::uint32_t>(text.size() + 1)), "\xCC");
      pair.expect_same(text);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(TokenizerFuzz, RandomBytesAndMutatedText) {
  Pair pair(quick_model(6000, true)), without_bytes(quick_model(6000, false));
  PhiloxSequence random(1, 2);
  const auto lines = split_lines(sample_lines(8, 1 << 18));
  for (int i = 0; i < 2000; ++i) {
    std::string text = i % 4 == 0 ? std::string(random.below(80), '\0')
                                  : lines[random.below(static_cast<std::uint32_t>(lines.size()))];
    const std::uint32_t changes =
        i % 4 == 0 ? static_cast<std::uint32_t>(text.size()) : random.below(8);
    for (std::uint32_t k = 0; k < changes && !text.empty(); ++k) {
      const std::size_t at = i % 4 == 0 ? k : random.below(static_cast<std::uint32_t>(text.size()));
      switch (i % 4 == 0 ? 0 : random.below(3)) {
        case 0:
          text[at] = static_cast<char>(random.next());
          break;
        case 1:
          text.erase(at, 1 + random.below(4));
          break;
        default:
          text.insert(at, lines[random.below(static_cast<std::uint32_t>(lines.size()))].substr(
                              0, random.below(9)));
      }
    }
    pair.expect_same(text);
    without_bytes.expect_same(text);
  }
}

TEST(TokenizerFuzz, RandomModelsDecodeTheSame) {
  for (std::uint64_t seed = 1000; seed < 1060; ++seed) {
    RandomModel model(seed);
    Pair pair(model.bytes(), 64);
    for (int i = 0; i < 30; ++i) {
      const auto ids = our_ids(pair.encoder, model.text());
      ASSERT_EQ(pair.tokenizer.decode(ids).value(), pair.library.decode(ids).value()) << seed;
    }
  }
}

}  // namespace
}  // namespace quintet
