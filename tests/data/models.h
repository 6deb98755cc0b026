// Models and texts that the tests of the tokenizer share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "data/sample_text.h"
#include "data/tokenizer/quick_model.h"
#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

namespace quintet {

// `bytes` of sample text, every language in turn, a document a line.
inline std::string sample_lines(std::uint64_t seed, std::size_t bytes, std::size_t line = 400) {
  static const std::vector<SampleText> kLanguages = [] {
    std::vector<SampleText> all;
    for (const std::string_view language : SampleText::languages()) all.emplace_back(language);
    return all;
  }();
  std::string out;
  for (std::uint64_t i = 0; out.size() < bytes; ++i) {
    kLanguages[i % kLanguages.size()].append_document(seed, i, line, out);
    out += '\n';
  }
  return out;
}

inline std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// SentencePiece's rules, trained out of it once.
inline const std::string& nmt_nfkc() {
  static const std::string kRules = builtin_charsmap("nmt_nfkc").value();
  return kRules;
}

// A small model counted from sample text, as a file's bytes. Counted once.
inline const std::string& quick_model(std::size_t pieces, bool byte_fallback,
                                      std::size_t text_bytes = 1 << 20) {
  static std::map<std::tuple<std::size_t, bool, std::size_t>, std::string> models;
  std::string& model = models[{pieces, byte_fallback, text_bytes}];
  if (model.empty()) {
    const QuickModelOptions options{pieces, byte_fallback, nmt_nfkc()};
    model = serialize_model(make_quick_model(sample_lines(1, text_bytes), options).value());
  }
  return model;
}

// Text that tokenizers trip over.
inline std::vector<std::string> odd_texts() {
  using namespace std::string_literals;
  std::vector<std::string> texts = {
      "",
      " ",
      "   ",
      "\t",
      "\t \n \r",
      "\r",
      "a",
      " a",
      "a ",
      "  a  b  ",
      "\u2581",
      "\u2581\u2581",
      "\u2581a",
      "a\u2581",
      " \u2581 ",
      "a \u2581b",
      "\u2581 \u2581",
      "\0"s,
      "a\0b"s,
      " \0 "s,
      "\x01\x02\x7f",
      "a\u00ADb",
      "\u200B",
      "a\u200Bb",
      "\uFEFFabc",
      "\u00A0",
      "a\u00A0\u00A0b",
      "\u3000a\u3000",
      "\u2028",
      "\u00A8",
      "a\u00A8",
      " \u00A8",
      "\u00B4\u00B4",
      "\xff",
      "\xff\xfe",
      "a\xff",
      "\xc3",
      "a\xc3",
      "\xc3 ",
      "\xe2\x96",
      "\xe2\x96 \x81",
      "\xf0\x9f\x98",
      "\xed\xa0\x80",
      "\xc0\x80",
      "\xf4\x90\x80\x80",
      "\xe0\x80\x80",
      "\x80\x80\x80",
      "\xef\xbf\xbd",
      "\xef\xbf",
      "e\u0301",
      "e\u0301\u0301",
      "\u0301",
      " \u0301",
      "a\u0323\u0302",
      "\u1EAD",
      "A\u030A",
      "\u1100\u1161\u11A8",
      "\uAC00\u11A8",
      "\u304B\u3099",
      "\u30CF\u309A",
      "\u0BC6\u0BBE",
      "\u0BC6 \u0BBE",
      "\u0928\u093C",
      "\u09C7\u09BE",
      "\u0915\u094D\u0937",
      "\uFF21\uFF22\uFF23\uFF01",
      "\uFF76\uFF9E",
      "\uFDFA",
      "\uFB01",
      "\u2460\u2461",
      "\u00BD",
      "\u2167",
      "\u33A5",
      "\U0001F468\u200D\U0001F469\u200D\U0001F467",
      "\U0001F1E9\U0001F1EA",
      "\U0010FFFF",
      "\U000E0001",
      "<unk>",
      "</s>",
      "<pad>",
      "<0x41>",
      "<extra_id_0>",
      "<extra_id_0> <extra_id_1>",
      "http://example.org/a/b?c=d&e=f#g",
      "don't",
      "1,234,567.89",
      "...!!!???",
      std::string(100000, 'a'),
      std::string(3000, ' ') + "x",
      std::string(50000, '\xff'),
  };
  std::string runs;
  for (int i = 0; i < 30000; ++i) runs += "\u4E2D";
  texts.push_back(runs);  // no boundary anywhere
  std::string marks = "o";
  for (int i = 0; i < 1000; ++i) marks += "\u0308";
  texts.push_back(marks);
  return texts;
}

// What SentencePiece makes of a text.
inline std::vector<std::int32_t> library_ids(const SentencePiece& library, std::string_view text) {
  std::vector<std::int32_t> ids;
  const Status status = library.encode(text, ids);
  if (!status.ok()) throw std::runtime_error(status.error().message);
  return ids;
}

inline std::vector<std::int32_t> our_ids(Encoder& encoder, std::string_view text) {
  Buffer<std::int32_t> ids;
  const Status status = encoder.encode(text, ids);
  if (!status.ok()) throw std::runtime_error(status.error().message);
  return {ids.span().begin(), ids.span().end()};
}

// A model in both implementations.
struct Pair {
  explicit Pair(const std::string& model, std::size_t cache_entries = 1 << 12)
      : library(SentencePiece::load(model, "model").value()),
        tokenizer(Tokenizer::create(model, "model").value()),
        encoder(tokenizer, cache_entries) {}

  void expect_same(std::string_view text) {
    const auto expected = library_ids(library, text), actual = our_ids(encoder, text);
    if (expected == actual) return;
    std::size_t at = 0;
    while (at < std::min(expected.size(), actual.size()) && expected[at] == actual[at]) ++at;
    const auto id = [&](const auto& ids) { return at < ids.size() ? ids[at] : -1; };
    ADD_FAILURE() << "token " << at << " is " << id(actual) << ", SentencePiece's " << id(expected)
                  << "; text of " << text.size() << " bytes begins with \"" << text.substr(0, 200)
                  << "\"";
  }
  void expect_same_lines(const std::string& text) {
    for (const std::string& line : split_lines(text)) expect_same(line);
  }

  SentencePiece library;
  Tokenizer tokenizer;
  Encoder encoder;
};

}  // namespace quintet
