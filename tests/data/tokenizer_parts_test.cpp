// The parts of the tokenizer by themselves: trie, characters' numbers, normalizer, vocabulary.
#include <map>

#include <gtest/gtest.h>

#include "tests/data/models.h"

namespace quintet {
namespace {

TEST(Trie, FindsExactlyItsKeys) {
  PhiloxSequence random(1, 1);
  for (const std::uint32_t labels : {1u, 3u, 40u, 5000u}) {
    std::map<std::vector<std::uint32_t>, std::int32_t> keys;
    for (int i = 0; i < 3000; ++i) {
      std::vector<std::uint32_t> key(1 + random.below(6));
      for (std::uint32_t& label : key) label = 1 + random.below(labels);
      keys.emplace(key, i);
    }
    std::vector<TrieKey> list;
    for (const auto& [key, value] : keys) {
      list.push_back({key, -10 * static_cast<float>(random.uniform()), value});
    }
    const Trie trie(list, labels);
    const auto find = [&](const std::vector<std::uint32_t>& key) -> std::int32_t {
      std::size_t node = 0;
      for (const std::uint32_t label : key) {
        const Trie::Node& parent = trie.nodes()[node];
        const std::size_t child = parent.base + label;
        if (!parent.may_have(label) || trie.nodes()[child].label != label) return -1;
        node = child;
      }
      return trie.nodes()[node].score == Trie::kNoKey ? -1 : trie.value(node);
    };
    for (const auto& [key, value] : keys) ASSERT_EQ(find(key), value);
    for (int i = 0; i < 3000; ++i) {
      std::vector<std::uint32_t> key(1 + random.below(6));
      for (std::uint32_t& label : key) label = 1 + random.below(labels);
      const auto found = keys.find(key);
      ASSERT_EQ(find(key), found == keys.end() ? -1 : found->second);
    }
  }
}

TEST(Trie, CanBeEmpty) {
  const Trie trie({}, 5);
  for (std::uint32_t label = 0; label <= 5; ++label) {
    EXPECT_EQ(trie.nodes()[label].label, Trie::kNobody);
  }
}

TEST(CharCodes, NumbersWhatIsThere) {
  const CharCodes codes({{U'a', 1.0}, {U'b', 3.0}, {0x4E2D, 0.5}, {0x10FFFF, 0.1}, {0, 0.0}});
  EXPECT_EQ(codes.count(), 5u);
  std::vector<std::uint32_t> seen;
  for (const char32_t c : {U'a', U'b', char32_t{0x4E2D}, char32_t{0x10FFFF}, char32_t{0}}) {
    seen.push_back(codes.of(c));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{1, 2, 3, 4, 5}));
  EXPECT_LT(codes.of(U'b'), codes.of(U'a'));  // the heavier first
  EXPECT_EQ(codes.of(U'c'), 0u);
  EXPECT_EQ(codes.of(0x10FFFE), 0u);
}

std::string normalized(const ModelProto& model, std::string_view text) {
  const auto normalizer = Normalizer::create(model, "m").value();
  Buffer<char> out;
  normalizer.normalize(text, out);
  for (std::size_t i = 0; i < Normalizer::kPadding; ++i) EXPECT_EQ(out.data()[out.size() + i], 0);
  return {out.data(), out.size()};
}

TEST(Normalizer, FollowsTheRules) {
  ModelProto model;
  model.charsmap = nmt_nfkc();
  model.pieces = {{"<unk>", 0, PieceType::kUnknown}, {"\uFF21!", 0, PieceType::kUserDefined}};
  EXPECT_EQ(normalized(model, ""), "");
  EXPECT_EQ(normalized(model, " \t  "), "");
  EXPECT_EQ(normalized(model, "  Hello   world  "), " Hello world");
  EXPECT_EQ(normalized(model, "cafe\u0301 au lait and more"), " caf\u00E9 au lait and more");
  EXPECT_EQ(normalized(model, "\uFF28\uFF49 there\u3000\u3000you"), " Hi there you");
  EXPECT_EQ(normalized(model, "bad \xff byte"), " bad \uFFFD byte");
  EXPECT_EQ(normalized(model, "a\u2581"), " a");
  EXPECT_EQ(normalized(model, "keep \uFF21! but \uFF21?"), " keep \uFF21! but A?");
  EXPECT_EQ(normalized(model, "no break\u00ADhere\x01."), " no break\u00ADhere.");
  model.add_dummy_prefix = false;
  EXPECT_EQ(normalized(model, " x  y "), "x y");
  model.remove_extra_whitespaces = false;
  EXPECT_EQ(normalized(model, " x  y "), " x  y ");
}

TEST(Vocabulary, KnowsItsSpecialPieces) {
  ModelProto proto;
  proto.pieces = {
      {"<pad>", 0, PieceType::kControl},        {"</s>", 0, PieceType::kControl},
      {"<unk>", 0, PieceType::kUnknown},        {"a", -1},
      {"<extra_id_2>", 0, PieceType::kControl}, {"\u2581<extra_id_1>", 0, PieceType::kUserDefined},
      {"<extra_id_0>", 0, PieceType::kControl}};
  const Vocabulary vocabulary = Vocabulary::create(proto, "m").value();
  EXPECT_EQ(vocabulary.pad_id(), 0);
  EXPECT_EQ(vocabulary.eos_id(), 1);
  EXPECT_EQ(vocabulary.unknown_id(), 2);
  EXPECT_EQ(vocabulary.sentinels(), 3);
  EXPECT_EQ(vocabulary.find("a"), 3);
  EXPECT_EQ(vocabulary.find("b"), std::nullopt);
}

TEST(Utf8, ReadsWhatItWrites) {
  std::string text;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    text.clear();
    append_utf8(code, text);
    const Utf8Char c = decode_utf8(text.data(), text.data() + text.size());
    ASSERT_TRUE(c.valid && c.code == code && c.length == text.size())
        << static_cast<unsigned>(code);
    // Cut short it is one bad byte.
    if (text.size() > 1) {
      ASSERT_FALSE(decode_utf8(text.data(), text.data() + text.size() - 1).valid);
    }
  }
}

TEST(SampleText, IsTheSameEveryTimeAndUtf8) {
  for (const std::string_view language : SampleText::languages()) {
    const SampleText text(language);
    std::string a, b;
    text.append_document(1, 2, 500, a);
    SampleText(language).append_document(1, 2, 500, b);
    EXPECT_EQ(a, b);
    EXPECT_TRUE(is_valid_utf8(a)) << language;
    EXPECT_GE(a.size(), 500u);
    b.clear();
    text.append_document(1, 3, 500, b);
    EXPECT_NE(a, b);
  }
}

}  // namespace
}  // namespace quintet
