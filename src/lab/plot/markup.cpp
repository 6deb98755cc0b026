#include "lab/plot/markup.h"

#include "data/tokenizer/utf8.h"

namespace quintet {

std::string printable_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Char c = decode_utf8(at, end);
    const bool control = (c.code < 0x20 && c.code != '\t' && c.code != '\n') || c.code == 0x7f;
    if (c.valid && !control) {
      result.append(at, c.length);
    } else {
      result += kReplacementCharacter;
    }
    at += c.length;
  }
  return result;
}

std::string escape_markup(std::string_view text) {
  std::string result;
  for (const char c : printable_utf8(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace quintet
