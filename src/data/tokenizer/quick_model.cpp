#include "data/tokenizer/quick_model.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

using Counts = std::unordered_map<std::string_view, std::int64_t>;
using Counted = std::pair<std::string_view, std::int64_t>;

constexpr std::size_t kWords = 300000;  // the commonest are looked into
constexpr std::size_t kLongWord = 24;   // characters; beyond, it is a script without spaces
constexpr std::size_t kLongPiece = 12, kLongPieceWithoutSpaces = 4;
constexpr int kRounds = 2;

// The most counted first; ties in the order of their text, so that results do not depend on
// hashing.
std::vector<Counted> sorted(const Counts& counts) {
  std::vector<Counted> order(counts.begin(), counts.end());
  std::sort(order.begin(), order.end(), [](const Counted& a, const Counted& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return order;
}

// Offsets of a text's characters, and its size.
void find_characters(std::string_view text, std::vector<std::size_t>& offsets) {
  offsets.clear();
  for (std::size_t at = 0; at < text.size();) {
    offsets.push_back(at);
    at += decode_utf8(text.data() + at, text.data() + text.size()).length;
  }
  offsets.push_back(text.size());
}

// The substrings of useful length of the commonest words, and every word's characters.
Counts count_substrings(const std::vector<Counted>& words) {
  Counts counts;
  std::vector<std::size_t> offsets;
  for (std::size_t number = 0; number < words.size(); ++number) {
    const auto& [word, count] = words[number];
    find_characters(word, offsets);
    const std::size_t longest = number >= kWords             ? 1
                                : offsets.size() > kLongWord ? kLongPieceWithoutSpaces
                                                             : kLongPiece;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      for (std::size_t j = i + 1; j < offsets.size() && j - i <= longest; ++j) {
        counts[word.substr(offsets[i], offsets[j] - offsets[i])] += count;
      }
    }
  }
  return counts;
}

// The `size` best candidates: every single character, then by the text they cover.
std::vector<Counted> choose(const Counts& counts, std::size_t size) {
  const auto characters = [](std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  };
  Counts weights;
  for (const auto& [text, count] : counts) {
    const auto length = characters(text);
    weights[text] = length == 1 ? INT64_MAX / 2 + count : count * length;
  }
  std::vector<Counted> chosen = sorted(weights);
  chosen.resize(std::min(chosen.size(), size));
  for (auto& [text, count] : chosen) count = counts.at(text);
  return chosen;
}

ModelProto model_of(const std::vector<Counted>& pieces, const QuickModelOptions& options) {
  ModelProto model;
  model.byte_fallback = options.byte_fallback;
  model.charsmap = options.charsmap;
  model.pieces = {{"<pad>", 0, PieceType::kControl},
                  {"</s>", 0, PieceType::kControl},
                  {"<unk>", 0, PieceType::kUnknown}};
  for (unsigned byte = 0; options.byte_fallback && byte < 256; ++byte) {
    model.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, PieceType::kByte});
  }
  double total = 1;
  for (const auto& [text, count] : pieces) total += static_cast<double>(count);
  for (const auto& [text, count] : pieces) {
    const double share = static_cast<double>(std::max<std::int64_t>(count, 1)) / total;
    model.pieces.push_back({std::string(text), static_cast<float>(std::log(share))});
  }
  return model;
}

// How often each piece is used when the words are split by them.
Result<Counts> count_uses(const std::vector<Counted>& pieces, const std::vector<Counted>& words,
                          const QuickModelOptions& options) {
  // Words are normalized already: no rules, no space put before them.
  QuickModelOptions plain = options;
  plain.charsmap.clear();
  ModelProto model = model_of(pieces, plain);
  model.add_dummy_prefix = model.remove_extra_whitespaces = false;
  const std::size_t first = model.pieces.size() - pieces.size();
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(serialize_model(model), "quick model"));
  Encoder encoder(tokenizer);
  Counts uses;
  for (const auto& [text, count] : pieces) uses[text] = 0;
  Buffer<std::int32_t> ids;
  for (const auto& [word, count] : words) {
    ids.clear();
    QT_TRY(encoder.encode(word, ids));
    for (const std::int32_t id : ids.span()) {
      const auto piece = static_cast<std::size_t>(id);
      if (piece >= first) uses[pieces[piece - first].first] += count;
    }
  }
  return uses;
}

}  // namespace

Result<ModelProto> make_quick_model(std::string_view text, const QuickModelOptions& options) {
  // 1. The words of the text, normalized, each with the space mark before it.
  ModelProto rules;
  rules.charsmap = options.charsmap;
  rules.pieces = {{"<unk>", 0, PieceType::kUnknown}};
  QT_ASSIGN(const Normalizer normalizer, Normalizer::create(rules, "quick model"));
  std::unordered_map<std::string, std::int64_t> owned;
  Buffer<char> normalized;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    normalizer.normalize(text.substr(begin, end - begin), normalized);
    begin = end + 1;
    std::string_view line(normalized.data(), normalized.size());
    while (!line.empty()) {
      const std::size_t next = std::min(line.find(kSpaceMark, 1), line.size());
      if (line.front() == kSpaceMark) {
        ++owned[std::string(kSpaceMarkText).append(line.substr(1, next - 1))];
      } else {
        ++owned[std::string(line.substr(0, next))];
      }
      line.remove_prefix(next);
    }
  }
  const std::vector<Counted> words = sorted(Counts(owned.begin(), owned.end()));

  // 2. Pieces: twice as many as wanted at first, then those that are used.
  const std::size_t special = options.byte_fallback ? 259 : 3;
  if (options.pieces <= special) {
    return usage_error("a vocabulary of {} pieces has no room beside {} special ones",
                       options.pieces, special);
  }
  const std::size_t wanted = options.pieces - special;
  std::vector<Counted> pieces = choose(count_substrings(words), 2 * wanted);
  for (int round = 0; round < kRounds; ++round) {
    QT_ASSIGN(const Counts uses, count_uses(pieces, words, options));
    pieces = choose(uses, round + 1 < kRounds ? wanted + wanted / 2 : wanted);
  }
  // The likeliest first, as trained models have them.
  std::sort(pieces.begin(), pieces.end(), [](const Counted& a, const Counted& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return model_of(pieces, options);
}

Result<std::string> builtin_charsmap(const std::string& rule_name) {
  // The library gives its rules away only inside a model, so it trains the smallest there is.
  const std::vector<std::string> sentences = {"a b a b"};
  QT_ASSIGN(const std::string model, train_sentencepiece({{"vocab_size", "8"},
                                                          {"hard_vocab_limit", "false"},
                                                          {"normalization_rule_name", rule_name}},
                                                         sentences));
  QT_ASSIGN(ModelProto proto, parse_model(model, rule_name));
  return std::move(proto.charsmap);
}

}  // namespace quintet
