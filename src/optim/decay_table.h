// Which weights decay how much: a rule for all, and exceptions by name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quintet {

class DecayTable {
 public:
  // Entries "PATTERN=DECAY": the first whose pattern is the weight's name decides, `otherwise`
  // where none is. A star in a pattern stands for any run of characters.
  static Result<DecayTable> create(double otherwise, const std::vector<std::string>& entries);

  double of(std::string_view weight) const;
  // The first entry that none of the names matches; null where each has its use.
  const std::string* unused(const std::vector<std::string>& weights) const;

 private:
  double otherwise_ = 0;
  std::vector<std::pair<std::string, double>> entries_;
};

// Whether a name is what a pattern with stars stands for.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace quintet
