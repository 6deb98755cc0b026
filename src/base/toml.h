// The part of TOML that configurations use: [sections] of `key = value` lines, where a value is a
// boolean, an integer, a float, a string or a list of these. A table on one line is its keys with
// dots, as in all of TOML: `peak = {log = [1, 2]}` is `peak.log = [1, 2]`. Anything else is refused
// with its line.
//
// A parser of our own because the library at hand (toml++ 3.3, Debian 12) has undefined behaviour
// on ordinary input, an accented letter in a comment for one, and asserts on malformed documents;
// tests/fuzz found both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace quintet {

using TomlScalar = std::variant<bool, std::int64_t, double, std::string>;
// A list of strings is what most lists are; any other list is one of scalars.
using TomlValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                               std::vector<TomlScalar>>;

struct TomlEntry {
  std::string section, key;  // a key may have dots: parallel.zero
  TomlValue value;
  std::int64_t line = 0;
  std::vector<std::int64_t> item_lines;  // of a list
};

// The entries in the order of the document. `origin` names it in errors ("run.toml:3: ...").
Result<std::vector<TomlEntry>> parse_toml(std::string_view text, const std::string& origin);

// A value standing alone, as in --set key=value.
Result<TomlValue> parse_toml_value(std::string_view text);

// How a value is written; parses back to itself.
std::string to_toml(const TomlValue& value);

}  // namespace quintet
