// UTF-8 as SentencePiece reads it: a byte that does not begin a well-formed character (RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF) stands alone and is not valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quintet {

// What stands for a byte that is not valid: U+FFFD.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Char {
  char32_t code = 0;
  std::uint8_t length = 1;  // bytes; 1 when not valid
  bool valid = false;
};

// The character at `at`, which must be before `end`.
inline Utf8Char decode_utf8(const char* at, const char* end) {
  const auto byte = [at](int i) {
    return static_cast<std::uint32_t>(static_cast<std::uint8_t>(at[i]));
  };
  const auto trails = [&](int i) { return (byte(i) & 0xC0) == 0x80; };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {static_cast<char32_t>(lead), 1, true};
  const std::ptrdiff_t left = end - at;
  if ((lead & 0xE0) == 0xC0 && left >= 2 && trails(1)) {
    const std::uint32_t code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    if (code >= 0x80) return {static_cast<char32_t>(code), 2, true};
  } else if ((lead & 0xF0) == 0xE0 && left >= 3 && trails(1) && trails(2)) {
    const std::uint32_t code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF)) {
      return {static_cast<char32_t>(code), 3, true};
    }
  } else if ((lead & 0xF8) == 0xF0 && left >= 4 && trails(1) && trails(2) && trails(3)) {
    const std::uint32_t code =
        (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    if (code >= 0x10000 && code <= 0x10FFFF) return {static_cast<char32_t>(code), 4, true};
  }
  return {};
}

inline bool is_valid_utf8(std::string_view text) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Char c = decode_utf8(at, end);
    if (!c.valid) return false;
    at += c.length;
  }
  return true;
}

// The beginning of `text`, at most so many bytes of it, cut between characters.
inline std::string_view beginning_of(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  // A character has at most three bytes after its first; what goes on for longer is none.
  for (std::size_t end = bytes; end > 0 && bytes - end <= 3; --end) {
    if ((static_cast<std::uint8_t>(text[end]) & 0xC0) != 0x80) return text.substr(0, end);
  }
  return text.substr(0, bytes);
}

inline void append_utf8(char32_t code, std::string& out) {
  const auto c = static_cast<std::uint32_t>(code);
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace quintet
