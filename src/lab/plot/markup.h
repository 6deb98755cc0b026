// Text on its way into HTML and SVG. Everything that comes from outside goes through here.
#pragma once

#include <string>
#include <string_view>

namespace quintet {

// With U+FFFD in place of bytes that are not UTF-8, and of control characters but tab and line
// feed.
std::string printable_utf8(std::string_view text);

// printable_utf8, and safe between tags and inside quoted attributes.
std::string escape_markup(std::string_view text);

}  // namespace quintet
