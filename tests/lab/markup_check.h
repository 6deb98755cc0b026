// Whether HTML is well formed: every element closed, in order, and every attribute quoted.
#pragma once

#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace quintet::testing {

// The first thing that is wrong; empty if nothing is.
inline std::string markup_error(const std::string& html) {
  static const std::set<std::string> kAlone = {"meta", "!doctype", "br"};
  std::vector<std::string> open;
  for (std::size_t at = 0; at < html.size();) {
    if (html[at] == '>') return "a bare > near " + html.substr(at, 40);
    if (html[at] != '<') {
      ++at;
      continue;
    }
    const bool closes = html.compare(at, 2, "</") == 0;
    std::size_t from = at + (closes ? 2 : 1), end = from;
    while (end < html.size() &&
           (std::isalnum(static_cast<unsigned char>(html[end])) || html[end] == '!'))
      ++end;
    std::string name = html.substr(from, end - from);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    bool quoted = false;
    while (end < html.size() && (quoted || html[end] != '>')) {
      if (html[end] == '"') quoted = !quoted;
      if (!quoted && html[end] == '<') return "< inside a tag near " + html.substr(at, 60);
      ++end;
    }
    if (end >= html.size()) return "a tag that never ends near " + html.substr(at, 60);
    const bool empty = html[end - 1] == '/';
    at = end + 1;
    if (closes) {
      if (open.empty() || open.back() != name) return "</" + name + "> closes nothing";
      open.pop_back();
    } else if (!empty && !kAlone.contains(name)) {
      open.push_back(name);
      if (name == "style" || name == "script") {  // not markup inside
        at = html.find("</" + name, at);
        if (at == std::string::npos) return name + " never ends";
      }
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

}  // namespace quintet::testing
