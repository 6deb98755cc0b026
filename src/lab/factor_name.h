// What a factor of a study is called in rows and figures.
#pragma once

#include <string>

namespace quintet {

// "zero" for parallel.zero, "model" for model.name.
inline std::string short_factor_name(const std::string& key) {
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos) return key;
  return key.substr(dot) == ".name" ? key.substr(0, dot) : key.substr(dot + 1);
}

}  // namespace quintet
