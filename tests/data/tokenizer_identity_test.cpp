// Ids equal to the SentencePiece library's: on text of all scripts, on odd texts, with cache states
// that differ.
#include <map>

#include <gtest/gtest.h>

#include "tests/data/models.h"

namespace quintet {
namespace {

std::string trained_model(const std::string& size, bool byte_fallback, const std::string& rules,
                          std::size_t bytes) {
  const auto sentences = split_lines(sample_lines(3, bytes));
  return train_sentencepiece({{"vocab_size", size},
                              {"byte_fallback", byte_fallback ? "true" : "false"},
                              {"character_coverage", "0.98"},
                              {"hard_vocab_limit", "false"},
                              {"normalization_rule_name", rules},
                              {"user_defined_symbols", "<extra_id_0>,<extra_id_1>,foo"},
                              {"control_symbols", "<ctrl>"},
                              {"pad_id", "0"},
                              {"eos_id", "1"},
                              {"unk_id", "2"},
                              {"bos_id", "-1"},
                              {"num_threads", "2"}},
                             sentences)
      .value();
}

struct Trained {
  const char* size;
  bool byte_fallback;
  const char* rules;
};
class TrainedModel : public ::testing::TestWithParam<Trained> {};

TEST_P(TrainedModel, GivesTheLibrarysIds) {
  const auto [size, byte_fallback, rules] = GetParam();
  Pair pair(trained_model(size, byte_fallback, rules, 1 << 19));
  ASSERT_TRUE(pair.tokenizer.is_native());
  pair.expect_same_lines(sample_lines(4, 1 << 19));
  pair.expect_same_lines(sample_lines(3, 1 << 18, 60));
  for (const std::string& text : odd_texts()) pair.expect_same(text);
}

INSTANTIATE_TEST_SUITE_P(All, TrainedModel,
                         ::testing::Values(Trained{"8000", false, "nmt_nfkc"},
                                           Trained{"8000", true, "nmt_nfkc"},
                                           Trained{"8000", true, "identity"},
                                           Trained{"6000", false, "nfkc_cf"}));

TEST(TokenizerIdentity, UserDefinedPiecesAddADouble) {
  // "a" and the user-defined "b" add up to -0.1, "ab" to the float nearest to it, which is less.
  ModelProto model;
  model.pieces = {{"<unk>", 0, PieceType::kUnknown},
                  {"ab", -0.1f},
                  {"a", 0},
                  {"b", 0, PieceType::kUserDefined}};
  model.add_dummy_prefix = false;
  Pair pair(serialize_model(model));
  EXPECT_EQ(our_ids(pair.encoder, "ab"), (std::vector<std::int32_t>{2, 3}));
  for (const char* text : {"ab", "abab", "ba", "aab", "b", "xab"}) pair.expect_same(text);
}

TEST(TokenizerIdentity, LongLines) {
  // The longer the line, the coarser the floats that its score is kept in: beyond some length every
  // stretch is computed anew, and still the same ids must come out.
  Pair pair(quick_model(6000, false));
  std::string line = sample_lines(5, 2 << 20);
  std::replace(line.begin(), line.end(), '\n', ' ');
  pair.expect_same(line);
  pair.expect_same(std::string_view(line).substr(0, 300000));
}

TEST(TokenizerIdentity, TheCacheForgetsNothingThatMatters) {
  // A cache of two entries, one of many, and one that is full of other text.
  const std::string model = quick_model(6000, true);
  Pair tiny(model, 2), large(model, 1 << 16);
  const std::string text = sample_lines(6, 1 << 19);
  tiny.expect_same_lines(text);
  large.expect_same_lines(text);
  large.expect_same_lines(text);
}

TEST(TokenizerIdentity, EveryCharacterAlone) {
  Pair pair(quick_model(6000, false)), with_bytes(quick_model(6000, true));
  std::string text;
  for (char32_t code = 0; code < 0x20000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    text.clear();
    append_utf8(code, text);
    text += "a";
    append_utf8(code, text);
    // The basic plane in full, of the next one a part.
    if (code >= 0x10000 && code % 8 != 0) continue;
    if (code % 16 == 0) with_bytes.expect_same(text);
    pair.expect_same(text);
  }
}

TEST(TokenizerIdentity, OddModelsGoThroughTheLibrary) {
  const auto sentences = split_lines(sample_lines(3, 1 << 17));
  for (const std::map<std::string, std::string>& options :
       std::vector<std::map<std::string, std::string>>{{{"model_type", "bpe"}},
                                                       {{"model_type", "char"}},
                                                       {{"model_type", "word"}},
                                                       {{"treat_whitespace_as_suffix", "true"}}}) {
    auto all = options;
    all.insert({{"vocab_size", "3000"}, {"hard_vocab_limit", "false"}});
    Pair pair(train_sentencepiece(all, sentences).value());
    EXPECT_FALSE(pair.tokenizer.is_native()) << options.begin()->second;
    pair.expect_same_lines(sample_lines(9, 1 << 15));
  }
}

TEST(TokenizerIdentity, DecodesAsTheLibraryDoes) {
  for (const bool byte_fallback : {false, true}) {
    Pair pair(trained_model("5000", byte_fallback, "nmt_nfkc", 1 << 18));
    const auto expect_same = [&](const std::vector<std::int32_t>& ids) {
      EXPECT_EQ(pair.tokenizer.decode(ids).value(), pair.library.decode(ids).value());
    };
    for (const std::string& line : split_lines(sample_lines(10, 1 << 17))) {
      expect_same(our_ids(pair.encoder, line));
    }
    PhiloxSequence random(3, 4);
    const auto size = static_cast<std::uint32_t>(pair.tokenizer.vocabulary().size());
    for (int i = 0; i < 3000; ++i) {
      std::vector<std::int32_t> ids(random.below(30));
      for (std::int32_t& id : ids) {
        id = static_cast<std::int32_t>(random.below(random.below(2) == 0 ? size : 300));
      }
      expect_same(ids);
    }
    EXPECT_FALSE(
        pair.tokenizer.decode(std::vector<std::int32_t>{static_cast<std::int32_t>(size)}).ok());
    EXPECT_FALSE(pair.tokenizer.decode(std::vector<std::int32_t>{-1}).ok());
  }
}

}  // namespace
}  // namespace quintet
