// JSON: one type of value for the whole program, and reading and writing it. nlohmann's parser and
// serializer cost a compiler seconds wherever they are used, so they are used in one place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace quintet {

// Objects keep their keys in the order in which they came.
using Json = nlohmann::ordered_json;

// An error names `origin` and says where in the text and why.
Result<Json> parse_json(std::string_view text, const std::string& origin);

// A number of an object; the fallback where there is none of that name, or something else.
double number_in(const Json& object, const char* key, double fallback);
std::int64_t integer_in(const Json& object, const char* key, std::int64_t fallback);

// All on one line; with an indent, a line for each value. Bytes of strings that are no UTF-8 become
// U+FFFD.
std::string to_text(const Json& json, int indent = -1);

}  // namespace quintet
