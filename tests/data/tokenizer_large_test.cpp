// Ids equal to SentencePiece's with the vocabularies that models are really trained with.
#include <gtest/gtest.h>

#include "tests/data/models.h"

namespace quintet {
namespace {

void expect_same(const std::string& model, const std::string& text) {
  const auto library = SentencePiece::load(model, "m").value();
  const auto tokenizer = Tokenizer::create(model, "m").value();
  Encoder encoder(tokenizer);
  std::size_t differ = 0;
  for (const std::string& line : split_lines(text)) {
    differ += library_ids(library, line) != our_ids(encoder, line) ? 1 : 0;
  }
  for (const std::string& line : odd_texts()) {
    differ += library_ids(library, line) != our_ids(encoder, line) ? 1 : 0;
  }
  EXPECT_EQ(differ, 0u);
}

TEST(LargeVocabulary, Trained32k) {
  const auto sentences = split_lines(sample_lines(3, 6 << 20));
  const auto model = train_sentencepiece({{"vocab_size", "32000"},
                                          {"character_coverage", "0.9999"},
                                          {"byte_fallback", "true"},
                                          {"num_threads", "2"}},
                                         sentences);
  ASSERT_TRUE(model.ok()) << model.error().message;
  expect_same(model.value(), sample_lines(4, 24 << 20, 2000));
}

TEST(LargeVocabulary, Counted250k) {
  const std::string model = quick_model(250000, true, 48 << 20);
  ASSERT_GT(parse_model(model, "m").value().pieces.size(), 200000u);
  expect_same(model, sample_lines(4, 24 << 20, 2000));
}

}  // namespace
}  // namespace quintet
