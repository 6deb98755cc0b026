#include "data/tokenizer/model_proto.h"

#include <gtest/gtest.h>

#include "tests/data/models.h"
#include "tests/support/mutate.h"

namespace quintet {
namespace {

ModelProto small_model() {
  ModelProto model;
  model.pieces = {{"<unk>", 0, PieceType::kUnknown},
                  {"</s>", 0, PieceType::kControl},
                  {"\u2581a", -1.5f},
                  {"b", -2.25f, PieceType::kUserDefined},
                  {"c", -3, PieceType::kUnused}};
  model.charsmap = nmt_nfkc();
  return model;
}

TEST(ModelProto, ReadsWhatItWrites) {
  ModelProto model = small_model();
  model.treat_whitespace_as_suffix = true;
  model.remove_extra_whitespaces = false;
  model.unk_surface = "?";
  const ModelProto again = parse_model(serialize_model(model), "m").value();
  ASSERT_EQ(again.pieces.size(), model.pieces.size());
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    EXPECT_EQ(again.pieces[i].text, model.pieces[i].text);
    EXPECT_EQ(again.pieces[i].score, model.pieces[i].score);
    EXPECT_EQ(again.pieces[i].type, model.pieces[i].type);
  }
  EXPECT_EQ(again.charsmap, model.charsmap);
  EXPECT_TRUE(again.treat_whitespace_as_suffix);
  EXPECT_FALSE(again.remove_extra_whitespaces);
  EXPECT_TRUE(again.add_dummy_prefix);
  EXPECT_EQ(again.unk_surface, "?");
}

TEST(ModelProto, UnknownFieldsAreSkippedAndRepeatedOnesAddUp) {
  const std::string model = serialize_model(small_model());
  // Field 200, a varint; field 201, bytes; field 1 (pieces) as a varint, which it is not.
  const std::string odd("\xC0\x0C\x05\xCA\x0C\x02xy\x08\x07", 10);
  const std::string more = odd + model + serialize_piece({"z", -9});
  const ModelProto parsed = parse_model(more, "m").value();
  EXPECT_EQ(parsed.pieces.size(), 6u);
  EXPECT_EQ(parsed.pieces.back().text, "z");
}

TEST(ModelProto, WhatIsNoModelIsRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("hello world"), std::string("\x0A"), std::string("\x0A\xFF"),
        std::string("\x0A\x05"
                    "ab"),
        std::string(100, '\xFF'), std::string(12, '\x80'), std::string("\x0B\x0C"),
        std::string("\x02\x00", 2)}) {
    const auto parsed = parse_model(bytes, "file.model");
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, ErrorCode::kBadInput);
    EXPECT_NE(parsed.error().message.find("file.model"), std::string::npos);
  }
}

TEST(ModelProto, ATruncatedModelIsNeverRead) {
  // Cut anywhere, the file lacks pieces or settings; only between two fields can that go unnoticed.
  const std::string model = serialize_model(small_model());
  std::size_t read = 0;
  for (std::size_t size = 0; size < 200; ++size) {
    if (parse_model(std::string_view(model).substr(0, size), "m").ok()) ++read;
  }
  EXPECT_EQ(read, 6u);  // after each piece, and after the trainer's settings
}

struct Broken {
  const char* what;
  void (*change)(ModelProto&);
};
class BrokenModel : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenModel, IsRefusedWithTheReason) {
  ModelProto model = small_model();
  GetParam().change(model);
  const auto tokenizer = Tokenizer::create(serialize_model(model), "file.model");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kBadInput);
  EXPECT_NE(tokenizer.error().message.find(GetParam().what), std::string::npos)
      << tokenizer.error().message;
  EXPECT_NE(tokenizer.error().message.find("file.model"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenModel,
    ::testing::Values(
        Broken{"is empty", [](ModelProto& m) { m.pieces[2].text.clear(); }},
        Broken{"NUL", [](ModelProto& m) { m.pieces[2].text = std::string("a\0b", 3); }},
        Broken{"no sensible number", [](ModelProto& m) { m.pieces[2].score = NAN; }},
        Broken{"no sensible number", [](ModelProto& m) { m.pieces[2].score = -INFINITY; }},
        Broken{"there twice", [](ModelProto& m) { m.pieces[2].text = "b"; }},
        Broken{"second unknown", [](ModelProto& m) { m.pieces[1].type = PieceType::kUnknown; }},
        Broken{"no unknown piece", [](ModelProto& m) { m.pieces[0].type = PieceType::kControl; }},
        Broken{"without byte fallback",
               [](ModelProto& m) {
                 m.pieces[1] = {"<0x41>", 0, PieceType::kByte};
               }},
        Broken{"all of the 256 bytes", [](ModelProto& m) { m.byte_fallback = true; }},
        Broken{"should be a byte",
               [](ModelProto& m) {
                 m.byte_fallback = true;
                 m.pieces[1] = {"<0x4g>", 0, PieceType::kByte};
               }},
        Broken{"can occur in text", [](ModelProto& m) { m.pieces.resize(2); }},
        Broken{"rules are damaged", [](ModelProto& m) { m.charsmap.resize(100); }},
        Broken{"rules are damaged", [](ModelProto& m) { m.charsmap = "abc"; }},
        Broken{"rules are damaged", [](ModelProto& m) { m.charsmap.back() = 'x'; }}));

// Whatever the bytes: an error or a tokenizer that works, never a crash.
TEST(ModelProto, SurvivesDamage) {
  const std::string model = serialize_model(small_model());
  const std::string without_rules = [] {
    ModelProto proto = small_model();
    proto.charsmap.clear();
    return serialize_model(proto);
  }();
  PhiloxSequence random(7, 8);
  int loaded = 0;
  for (int i = 0; i < 600; ++i) {
    const std::string bytes = mutate(i % 3 == 0 ? model : without_rules, random);
    const auto parsed = parse_model(bytes, "m");
    if (!parsed.ok() || parsed.value().model_type != ModelType::kUnigram ||
        !UnigramModel::supports(parsed.value())) {
      continue;  // the library would load it, and it does not stand damage
    }
    const auto tokenizer = Tokenizer::create(bytes, "m");
    if (!tokenizer.ok()) continue;
    ++loaded;
    Encoder encoder(tokenizer.value(), 16);
    for (const char* text : {"a b c", "\u00e9\u0301 \uff21\u4e2d", "\xff\xc3 a\u2581"}) {
      const auto ids = our_ids(encoder, text);
      ASSERT_TRUE(tokenizer.value().decode(ids).ok());
    }
  }
  EXPECT_GT(loaded, 20);
}

// The rules alone: every byte of their trie may lie.
TEST(ModelProto, SurvivesDamagedRules) {
  PhiloxSequence random(9, 10);
  for (int i = 0; i < 60; ++i) {
    ModelProto model = small_model();
    const std::size_t trie = 4 + 4 * random.below(256);
    for (std::uint32_t k = 0, count = 1 + random.below(200); k < count; ++k) {
      model.charsmap[i % 2 == 0 ? 4 + random.below(100000) : trie + random.below(1024)] =
          static_cast<char>(random.next());
    }
    model.charsmap.back() = '\0';
    if (!UnigramModel::supports(model)) continue;
    const auto tokenizer = Tokenizer::create(serialize_model(model), "m");
    if (!tokenizer.ok()) continue;
    Encoder encoder(tokenizer.value(), 16);
    for (const std::string& line : split_lines(sample_lines(2, 1 << 13))) our_ids(encoder, line);
  }
}

}  // namespace
}  // namespace quintet
