#include "base/toml.h"

#include <charconv>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace quintet {
namespace {

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

void append_utf8(std::uint32_t code, std::string& out) {
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | (code >> 6));
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | (code >> 12));
    byte(0x80 | ((code >> 6) & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | (code >> 18));
    byte(0x80 | ((code >> 12) & 0x3f));
    byte(0x80 | ((code >> 6) & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

constexpr int kDeepestTable = 8;

class Parser {
 public:
  Parser(std::string_view text, std::string origin) : text_(text), origin_(std::move(origin)) {}

  Result<std::vector<TomlEntry>> document() {
    std::vector<TomlEntry> entries;
    std::set<std::string> sections, keys;
    std::string section;
    constexpr std::string_view kMark = "\xEF\xBB\xBF";  // some editors put it before UTF-8
    if (starts_with(kMark)) at_ = kMark.size();
    while (true) {
      skip_blank_lines();
      if (at_end()) return entries;
      if (peek() == '[') {
        ++at_;
        if (!at_end() && peek() == '[') return fail("lists of tables are not used here");
        skip_spaces();
        QT_ASSIGN(section, bare_key("a section's name"));
        skip_spaces();
        if (at_end() || peek() != ']') return fail("expected ] after the section's name");
        ++at_;
        if (!sections.insert(section).second)
          return fail(fmt::format("section [{}] occurs twice", section));
      } else {
        TomlEntry entry;
        entry.line = line_;
        entry.section = section;
        QT_ASSIGN(entry.key, dotted_key());
        skip_spaces();
        if (at_end() || peek() != '=') return fail(fmt::format("expected = after {}", entry.key));
        ++at_;
        skip_spaces();
        const std::size_t first = entries.size();
        QT_TRY(assign(std::move(entry), 0, entries));
        for (std::size_t i = first; i < entries.size(); ++i) {
          if (!keys.insert(section + "." + entries[i].key).second)
            return fail(fmt::format("{} occurs twice", entries[i].key));
        }
      }
      skip_spaces();
      skip_comment();
      if (!at_end() && peek() != '\n' && peek() != '\r')
        return fail("expected the end of the line");
    }
  }

  Result<TomlValue> single_value() {
    QT_ASSIGN(TomlValue result, value());
    if (!at_end()) return fail("something follows the value");
    return result;
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  bool starts_with(std::string_view word) const { return text_.substr(at_, word.size()) == word; }
  Error fail(const std::string& why) const {
    return usage_error("{}:{}: not valid: {}", origin_, line_, why);
  }

  void skip_spaces() {
    while (!at_end() && (peek() == ' ' || peek() == '\t')) ++at_;
  }
  void skip_comment() {
    if (at_end() || peek() != '#') return;
    while (!at_end() && peek() != '\n') ++at_;
  }
  void skip_blank_lines() {
    while (!at_end()) {
      skip_spaces();
      skip_comment();
      if (at_end()) return;
      if (peek() == '\n') {
        ++line_;
      } else if (peek() != '\r') {
        return;
      }
      ++at_;
    }
  }

  Result<std::string> bare_key(const std::string& what) {
    std::string key;
    while (!at_end() && is_bare(peek())) key += text_[at_++];
    if (key.empty()) return fail(fmt::format("expected {}", what));
    return key;
  }

  Result<std::string> dotted_key() {
    QT_ASSIGN(std::string key, bare_key("a key"));
    while (!at_end() && peek() == '.') {
      ++at_;
      QT_ASSIGN(const std::string part, bare_key("a key after the dot"));
      key += "." + part;
    }
    return key;
  }

  // What follows "key =": a value, or a table on one line, each of whose keys is one more part of
  // ours.
  Status assign(TomlEntry entry, int depth, std::vector<TomlEntry>& entries) {
    if (at_end() || peek() != '{') {
      item_lines_.clear();
      QT_ASSIGN(entry.value, value());
      entry.item_lines = std::move(item_lines_);
      entries.push_back(std::move(entry));
      return {};
    }
    if (depth == kDeepestTable) return fail("too many tables inside each other");
    do {
      ++at_;  // the brace, or a comma
      skip_spaces();
      TomlEntry inner = entry;
      QT_ASSIGN(const std::string key, dotted_key());
      inner.key += "." + key;
      skip_spaces();
      if (at_end() || peek() != '=') return fail(fmt::format("expected = after {}", key));
      ++at_;
      skip_spaces();
      QT_TRY(assign(std::move(inner), depth + 1, entries));
      skip_spaces();
    } while (!at_end() && peek() == ',');
    if (at_end() || peek() != '}') return fail("expected , or } in a table on one line");
    ++at_;
    return {};
  }

  Result<TomlValue> value() {
    if (at_end()) return fail("a value is missing");
    const char c = peek();
    if (c == '"' || c == '\'') {
      QT_ASSIGN(std::string text, string());
      return TomlValue(std::move(text));
    }
    if (c == '[') return list();
    if (starts_with("true") || starts_with("false")) {
      const bool truth = peek() == 't';
      at_ += truth ? 4 : 5;
      return TomlValue(truth);
    }
    return number();
  }

  Result<std::string> string() {
    if (starts_with("\"\"\"") || starts_with("'''"))
      return fail("strings of several lines are not used here");
    const char quote = text_[at_++];
    std::string out;
    while (true) {
      if (at_end() || peek() == '\n') return fail("a string does not end");
      const char c = text_[at_++];
      if (c == quote) return out;
      if (c != '\\' || quote == '\'') {
        if (static_cast<unsigned char>(c) < 0x20 && c != '\t')
          return fail("a control character in a string");
        out += c;
        continue;
      }
      if (at_end()) return fail("a string does not end");
      const char escape = text_[at_++];
      constexpr std::string_view kNames = "btnfr\"\\", kValues = "\b\t\n\f\r\"\\";
      if (const std::size_t known = kNames.find(escape); known != std::string_view::npos) {
        out += kValues[known];
      } else if (escape == 'u' || escape == 'U') {
        QT_ASSIGN(const std::uint32_t code, hex_digits(escape == 'u' ? 4 : 8));
        append_utf8(code, out);
      } else {
        return fail("an unknown escape in a string");
      }
    }
  }

  Result<std::uint32_t> hex_digits(std::size_t count) {
    const std::string_view digits = text_.substr(at_, count);
    std::uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || end != digits.data() + count || digits.size() != count ||
        code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      return fail("an escape that is no character");
    }
    at_ += count;
    return code;
  }

  Result<TomlScalar> scalar() {
    if (!at_end() && peek() == '[') return fail("lists of lists are not used here");
    QT_ASSIGN(const TomlValue one, value());
    TomlScalar result;
    std::visit(
        [&](const auto& v) {
          if constexpr (std::is_constructible_v<TomlScalar, decltype(v)>) result = v;
        },
        one);
    return result;
  }

  Result<TomlValue> list() {
    ++at_;
    std::vector<TomlScalar> parts;
    while (true) {
      skip_blank_lines();
      if (at_end()) return fail("a list does not end");
      if (peek() == ']') break;
      item_lines_.push_back(line_);
      QT_ASSIGN(TomlScalar part, scalar());
      parts.push_back(std::move(part));
      skip_blank_lines();
      if (at_end()) return fail("a list does not end");
      if (peek() == ']') break;
      if (peek() != ',') return fail("expected , or ] in a list");
      ++at_;
    }
    ++at_;
    std::vector<std::string> strings;
    for (const TomlScalar& part : parts) {
      if (const auto* text = std::get_if<std::string>(&part)) strings.push_back(*text);
    }
    if (strings.size() == parts.size()) return TomlValue(std::move(strings));
    return TomlValue(std::move(parts));
  }

  Result<TomlValue> number() {
    const std::size_t begin = at_;
    while (!at_end() && (is_bare(peek()) || peek() == '+' || peek() == '.')) ++at_;
    const std::string_view token = text_.substr(begin, at_ - begin);
    if (token.empty()) return fail("a value is missing");
    // Digits may be grouped with single underscores between them.
    std::string digits;
    for (std::size_t i = 0; i < token.size(); ++i) {
      if (token[i] != '_') {
        digits += token[i];
      } else if (i == 0 || i + 1 == token.size() || !is_digit(token[i - 1]) ||
                 !is_digit(token[i + 1])) {
        return not_a_value(token);
      }
    }
    const bool negative = digits[0] == '-';
    const std::string_view bare =
        std::string_view(digits).substr(negative || digits[0] == '+' ? 1 : 0);
    if (bare == "inf" || bare == "nan") {
      const double special = bare == "inf" ? INFINITY : NAN;
      return TomlValue(negative ? -special : special);
    }
    if (bare.empty() || !is_digit(bare[0])) return not_a_value(token);
    const char* end = digits.data() + digits.size();
    const char* from = digits.data() + (digits[0] == '+' ? 1 : 0);
    if (bare.find_first_of(".eE") == std::string_view::npos) {
      std::int64_t integer = 0;
      const auto [stop, error] = std::from_chars(from, end, integer);
      if (error == std::errc::result_out_of_range)
        return fail(fmt::format("{} is too large", token));
      if (error != std::errc() || stop != end) return not_a_value(token);
      return TomlValue(integer);
    }
    double real = 0;
    const auto [stop, error] = std::from_chars(from, end, real);
    if (error == std::errc::result_out_of_range)
      return fail(fmt::format("{} is out of range", token));
    if (error != std::errc() || stop != end) return not_a_value(token);
    return TomlValue(real);
  }
  Error not_a_value(std::string_view token) const {
    return fail(fmt::format("{} is no value; strings are written in quotes", token));
  }

  std::string_view text_;
  std::string origin_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  std::vector<std::int64_t> item_lines_;  // of the list read last
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

Result<std::vector<TomlEntry>> parse_toml(std::string_view text, const std::string& origin) {
  return Parser(text, origin).document();
}

Result<TomlValue> parse_toml_value(std::string_view text) {
  return Parser(text, "value").single_value();
}

std::string to_toml(const TomlValue& value) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const {
      std::string text = fmt::format("{}", v);
      // A float is told from an integer by its point or exponent.
      if (text.find_first_of(".en") == std::string::npos) text += ".0";
      return text;
    }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(const std::vector<std::string>& v) const {
      std::vector<std::string> parts;
      for (const std::string& part : v) parts.push_back(quoted(part));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
    std::string operator()(const std::vector<TomlScalar>& v) const {
      std::vector<std::string> parts;
      for (const TomlScalar& part : v) parts.push_back(std::visit(*this, part));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
  };
  return std::visit(Visitor{}, value);
}

}  // namespace quintet
