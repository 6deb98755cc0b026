#include "data/tokenizer/normalizer.h"

#include <cstring>

#include "data/tokenizer/utf8.h"

namespace quintet {
namespace {

constexpr char32_t kSpaceMarkCode = 0x2581;

std::uint8_t byte_of(char c) {
  return static_cast<std::uint8_t>(c);
}

// Whether eight bytes are printable ASCII, spaces included but never two in a row. `after_space`
// tells whether a space came before them, and is updated.
bool is_clean_ascii(std::uint64_t bytes, bool& after_space) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kTops = 0x8080808080808080;
  const std::uint64_t from_space = bytes + 0x60 * kOnes;  // top bit: at least 0x20, if ASCII
  const std::uint64_t is_delete = bytes + kOnes;          // top bit: 0x7F, if ASCII
  if ((bytes & kTops) != 0 || (from_space & kTops) != kTops || (is_delete & kTops) != 0) {
    return false;
  }
  const std::uint64_t differs = bytes ^ (0x20 * kOnes);
  const std::uint64_t spaces = ~(differs + 0x7F * kOnes) & kTops;
  if ((spaces & (spaces << 8 | (after_space ? 0x80 : 0))) != 0) return false;
  after_space = (spaces >> 63) != 0;
  return true;
}

}  // namespace

Result<Normalizer> Normalizer::create(const ModelProto& model, const std::string& name) {
  Normalizer normalizer;
  normalizer.add_dummy_prefix_ = model.add_dummy_prefix;
  normalizer.remove_extra_whitespaces_ = model.remove_extra_whitespaces;
  QT_ASSIGN(normalizer.charsmap_, CharsMap::parse(model.charsmap, name));
  std::vector<TrieKey> symbols;
  for (const Piece& piece : model.pieces) {
    if (piece.type != PieceType::kUserDefined) continue;
    TrieKey& key = symbols.emplace_back();
    for (const char c : piece.text) key.labels.push_back(byte_of(c) + 1u);
    normalizer.symbol_begins_[byte_of(piece.text[0])] = true;
  }
  normalizer.symbols_ = Trie(std::move(symbols), 256);
  normalizer.classify();
  return normalizer;
}

// Walks every character of the first plane through the rules.
void Normalizer::classify() {
  classes_.assign(0x10000, kPlain);
  std::vector<CharsMap::Cursor> starters;
  std::string text;
  for (char32_t code = 0; code < classes_.size(); ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    text.clear();
    append_utf8(code, text);
    std::uint8_t& type = classes_[code];
    if (code == U' ') type |= kSpace;
    if (code == kSpaceMarkCode || symbol_begins_[byte_of(text[0])]) type |= kRule;
    CharsMap::Cursor cursor = charsmap_.root();
    bool inside = !charsmap_.empty();
    for (const char c : text) {
      inside = inside && charsmap_.step(cursor, byte_of(c));
      if (inside && cursor.rule) type |= kRule;
    }
    if (inside) {
      type |= code == U' ' ? kRule | kStarts : kStarts;
      starters.push_back(cursor);
    }
  }
  classify_extenders(starters);
  ascii_is_clean_ = true;
  for (char32_t code = 0; code < 0x80; ++code) {
    const bool printable = code >= 0x20 && code < 0x7F;
    const int unclean = printable ? kRule | kExtends : kExtends;
    if ((classes_[code] & unclean) != 0) ascii_is_clean_ = false;
  }
}

// Finds the second characters of rules: the well-formed characters to which the trie leads on from
// the end of a first one.
void Normalizer::classify_extenders(const std::vector<CharsMap::Cursor>& starters) {
  struct State {
    CharsMap::Cursor cursor;
    std::uint32_t code;
    int left;  // bytes that complete the character
  };
  // The trie is the file's: it may be anything, even a knot. Past this many steps every character
  // is taken for a second one, which is slow and right.
  std::int64_t budget = 1 << 25;
  std::vector<State> states;
  for (const CharsMap::Cursor& starter : starters) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      CharsMap::Cursor cursor = starter;
      if (!charsmap_.step(cursor, static_cast<std::uint8_t>(byte))) continue;
      if (byte < 0x80) {
        classes_[byte] |= kExtends;
      } else if (byte < 0xC0) {
        // The middle of a character follows: only ill-formed text can match.
      } else if (byte < 0xE0) {
        states.push_back({cursor, byte & 0x1F, 1});
      } else if (byte < 0xF0) {
        states.push_back({cursor, byte & 0x0F, 2});
      }  // beyond the first plane class_of() is kRule anyway
    }
    budget -= 256;
    while (!states.empty() && budget > 0) {
      const State state = states.back();
      states.pop_back();
      // A rule that ends inside a character matches any that begins like it: give up.
      budget -= state.cursor.rule ? budget : 64;
      for (unsigned byte = 0x80; byte < 0xC0; ++byte) {
        CharsMap::Cursor cursor = state.cursor;
        if (!charsmap_.step(cursor, static_cast<std::uint8_t>(byte))) continue;
        const std::uint32_t code = state.code << 6 | (byte & 0x3F);
        if (state.left > 1) {
          states.push_back({cursor, code, state.left - 1});
        } else {
          classes_[code] |= kExtends;
        }
      }
    }
  }
  if (budget > 0) return;
  for (std::uint8_t& type : classes_) type |= kExtends;
}

Normalizer::Prefix Normalizer::normalize_prefix(const char* at, const char* end) const {
  if (symbol_begins_[byte_of(*at)]) {
    const auto nodes = symbols_.nodes();
    std::size_t longest = 0;
    std::uint32_t node = 0;
    for (const char* p = at; p < end; ++p) {
      const std::uint32_t label = byte_of(*p) + 1u;
      if (!nodes[node].may_have(label)) break;
      node = nodes[node].base + label;
      if (nodes[node].label != label) break;
      if (nodes[node].score != Trie::kNoKey) longest = static_cast<std::size_t>(p - at) + 1;
    }
    if (longest > 0) return {longest, {at, longest}};
  }
  if (const CharsMap::Match match = charsmap_.longest(at, end); match.length > 0) {
    return {match.length, match.replacement};
  }
  const Utf8Char c = decode_utf8(at, end);
  if (!c.valid) return {1, kReplacementCharacter};
  return {c.length, {at, c.length}};
}

// Appends to a buffer that always has room for what is left of the text, and for the padding.
class Normalizer::Writer {
 public:
  Writer(Buffer<char>& out, std::size_t left) : out_(out) {
    out_.clear();
    out_.reserve(1 + left + kPadding);
    at_ = out_.data();
  }

  // For what is no longer than the text it stands for.
  void put(char c) { *at_++ = c; }
  void copy8(const char* from) {
    std::memcpy(at_, from, 8);
    at_ += 8;
  }
  void copy(const char* from, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) *at_++ = from[i];
  }
  // For replacements, which may be longer; `left` bytes of text remain after this.
  void replace(std::string_view text, std::size_t left) {
    out_.set_size(size());
    out_.reserve_more(text.size() + left + kPadding);
    at_ = out_.data() + out_.size();
    // The space mark of SentencePiece's representation becomes ours.
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i, kSpaceMarkText.size()) == kSpaceMarkText) {
        put(kSpaceMark);
        i += kSpaceMarkText.size() - 1;
      } else {
        put(text[i]);
      }
    }
  }
  void undo(std::size_t size) { at_ -= size; }
  void trim_spaces() {
    while (at_ > out_.data() && at_[-1] == kSpaceMark) --at_;
  }
  void finish() {
    out_.set_size(size());
    std::memset(at_, 0, kPadding);
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(at_ - out_.data()); }
  Buffer<char>& out_;
  char* at_;
};

void Normalizer::normalize(std::string_view text, Buffer<char>& out) const {
  const char *at = text.data(), *const end = at + text.size();
  // 1. Leading spaces go.
  while (remove_extra_whitespaces_ && at < end) {
    const Prefix prefix = normalize_prefix(at, end);
    if (prefix.text != " ") break;
    at += prefix.length;
  }
  Writer writer(out, static_cast<std::size_t>(end - at));
  if (at == end) return writer.finish();
  if (add_dummy_prefix_) writer.put(kSpaceMark);

  bool after_space = remove_extra_whitespaces_;  // a space that comes now is one too many
  // The last character was plain and may yet turn out to be the beginning of a rule; if so, its
  // length and what came before it.
  bool after_starter = false, starter_after_space = false;
  std::size_t starter_length = 0;
  const bool bulk = ascii_is_clean_ && remove_extra_whitespaces_;
  while (at < end) {
    // 2. Eight clean bytes at a time. The one after them must not join the last into a rule.
    if (bulk && end - at > 8 && byte_of(at[8]) < 0x80) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, at, 8);
      bool space = after_space;
      if (is_clean_ascii(bytes, space)) {
        writer.copy8(at);
        at += 8;
        after_space = space;
        after_starter = false;
        continue;
      }
    }
    // 3. One character that no rule touches.
    const Utf8Char c = decode_utf8(at, end);
    const std::uint8_t type = c.valid ? class_of(c.code) : kRule | kExtends;
    const bool joins = after_starter && (type & kExtends) != 0;
    if (!joins && (type & kRule) == 0) {
      after_starter = (type & kStarts) != 0;
      starter_length = c.length;
      starter_after_space = after_space;
      if ((type & kSpace) == 0) {
        writer.copy(at, c.length);
        after_space = false;
      } else if (!after_space) {
        writer.put(kSpaceMark);
        after_space = remove_extra_whitespaces_;
      }
      at += c.length;
      continue;
    }
    // 4. Whatever else, by the rules, from the starter on if there is one.
    if (joins) {
      at -= starter_length;
      writer.undo(starter_length);
      after_space = starter_after_space;
    }
    after_starter = false;
    const Prefix prefix = normalize_prefix(at, end);
    std::string_view replacement = prefix.text;
    while (after_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
    at += prefix.length;
    if (!replacement.empty()) {
      writer.replace(replacement, static_cast<std::size_t>(end - at));
      after_space = remove_extra_whitespaces_ && replacement.ends_with(' ');
    }
  }
  // 5. Trailing spaces go.
  if (remove_extra_whitespaces_) writer.trim_spaces();
  writer.finish();
}

}  // namespace quintet
