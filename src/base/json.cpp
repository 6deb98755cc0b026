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

double number_in(const Json& object, const char* key, double fallback) {
  if (!object.is_object()) return fallback;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : fallback;
}

std::int64_t integer_in(const Json& object, const char* key, std::int64_t fallback) {
  if (!object.is_object()) return fallback;
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>()
                                                             : fallback;
}

std::string to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quintet
