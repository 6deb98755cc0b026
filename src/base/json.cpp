#include "base/json.h"

namespace quintet {

Result<Json> parse_json(std::string_view text, const std::string& origin) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // begins with "[json.exception.<kind>.<number>] "
    return bad_input("{}: not valid JSON: {}", origin, what.substr(what.find("] ") + 2));
  }
}

std::string to_text(const Json& json, int indent) {
  return json.dump(indent);
}

}  // namespace quintet
