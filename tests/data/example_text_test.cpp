#include "data/loader/example_text.h"

#include <gtest/gtest.h>

#include "data/loader/objective.h"

namespace quintet {
namespace {

// Pieces 4 to 9 are "_a" to "_f", 10 the byte 0x07; two sentinels lie above the model.
Vocabulary small_vocabulary() {
  ModelProto model;
  model.byte_fallback = true;
  model.pieces = {{"<pad>", 0, PieceType::kControl},
                  {"</s>", 0, PieceType::kControl},
                  {"<unk>", 0, PieceType::kUnknown}};
  for (unsigned byte = 0; byte < 256; ++byte) {
    model.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, PieceType::kByte});
  }
  for (const char* piece : {"\u2581a", "\u2581b", "c", "d\u2581", "\u2581e"}) {
    model.pieces.push_back({piece, -1});
  }
  return Vocabulary::create(std::move(model), "small").value();
}
constexpr std::int32_t kA = 259, kB = 260, kC = 261, kD = 262, kE = 263, kFirst = 265,
                       kSecond = 264;
constexpr SpecialTokens kSpecial{0, 1, 2, kFirst, 2};

TEST(ExampleText, ReadsPiecesBytesAndSentinels) {
  const Vocabulary vocabulary = small_vocabulary();
  const ExampleText text(vocabulary, kSpecial);
  const auto readable = [&](std::vector<std::int32_t> ids) { return text.readable(ids); };
  EXPECT_EQ(readable({kA, kC, kD, kB}), " acd  b");
  EXPECT_EQ(readable({3 + 0xC3, 3 + 0xA9, 3 + 0x1B}), "\u00E9 ");  // escape is no escape here
  EXPECT_EQ(readable({kA, kFirst, kSecond}), " a <extra_id_0> <extra_id_1>");
  EXPECT_EQ(readable({-1, 1000}), " <no piece -1> <no piece 1000>");
}

TEST(ExampleText, PutsSpansBack) {
  const Vocabulary vocabulary = small_vocabulary();
  const ExampleText text(vocabulary, kSpecial);
  const std::vector<std::int32_t> source = {kA, kFirst, kB, kC, kSecond, 1},
                                  labels = {kFirst, kE, kE, kSecond, kC, 1};
  EXPECT_EQ(text.with_spans(source, labels), " a[ e e] bc[c]");
  // A prefix and its continuation.
  EXPECT_EQ(text.with_spans(std::vector<std::int32_t>{kA, kB, 1}, std::vector<std::int32_t>{kE, 1}),
            " a b[ e]");
  // Labels that do not belong to the source.
  EXPECT_EQ(text.with_spans(source, std::vector<std::int32_t>{}), " a[] bc[]");
}

// What the objectives make can be put together again.
TEST(ExampleText, ShowsTheTextThatAnObjectiveTookApart) {
  const Vocabulary vocabulary = small_vocabulary();
  const ExampleText text(vocabulary, kSpecial);
  const std::vector<std::int32_t> tokens = {kA, kB, kE, kC, kA, kC, kB, kE, kA, kB};
  const SpanCounts counts{10, 3, 2};
  std::vector<std::int32_t> source(static_cast<std::size_t>(counts.source_length())),
      labels(static_cast<std::size_t>(counts.target_length()));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PhiloxSequence random(seed, 1);
    corrupt_spans(tokens, counts, {1, kFirst}, random, source, labels);
    std::string shown = text.with_spans(source, labels);
    EXPECT_EQ(std::count(shown.begin(), shown.end(), '['), 2);
    std::erase_if(shown, [](char c) { return c == '[' || c == ']'; });
    EXPECT_EQ(shown, text.readable(tokens));
  }
}

}  // namespace
}  // namespace quintet
