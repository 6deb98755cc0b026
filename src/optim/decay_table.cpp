#include "optim/decay_table.h"

#include <algorithm>
#include <charconv>

namespace quintet {

bool matches(std::string_view pattern, std::string_view name) {
  // The last star may have to take more: from there on it is tried again.
  std::size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Result<DecayTable> DecayTable::create(double otherwise, const std::vector<std::string>& entries) {
  DecayTable table;
  table.otherwise_ = otherwise;
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.rfind('=');
    double decay = -1;
    if (equals != std::string::npos && equals > 0) {
      const char *begin = entry.data() + equals + 1, *end = entry.data() + entry.size();
      const auto parsed = std::from_chars(begin, end, decay);
      if (parsed.ec != std::errc() || parsed.ptr != end) decay = -1;
    }
    if (!(decay >= 0 && decay <= 1)) {
      return usage_error(
          "optimizer.decay_table: \"{}\": expected a name or a pattern, =, and a decay from 0 to "
          "1, as in \"*layer_norm*=0\"",
          entry);
    }
    table.entries_.emplace_back(entry.substr(0, equals), decay);
  }
  return table;
}

double DecayTable::of(std::string_view weight) const {
  for (const auto& [pattern, decay] : entries_) {
    if (matches(pattern, weight)) return decay;
  }
  return otherwise_;
}

const std::string* DecayTable::unused(const std::vector<std::string>& weights) const {
  for (const auto& [pattern, decay] : entries_) {
    if (std::none_of(weights.begin(), weights.end(),
                     [&p = pattern](const std::string& name) { return matches(p, name); }))
      return &pattern;
  }
  return nullptr;
}

}  // namespace quintet
