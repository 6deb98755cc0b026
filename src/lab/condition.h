// Conditions over the settings of a run, as study files write them:
//   "parallel.tp * parallel.pp <= ranks", "zero == 3 or not (recompute == 'full')"
// Numbers, strings and booleans; + - * / %, comparisons, and, or, not, parentheses. A name is a
// setting's full key, or its last part where that is enough.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/result.h"
#include "base/toml.h"

namespace quintet {

using Settings = std::map<std::string, TomlScalar>;  // by key

class RowCondition {
 public:
  // `known`: settings that may be named, with any value of theirs. `origin` names the place in
  // errors. Finds names that are not known and kinds of value that do not go together.
  static Result<RowCondition> parse(const std::string& text, const Settings& known,
                                    const std::string& origin);
  Result<bool> holds(const Settings& settings) const;
  const std::string& text() const { return text_; }
  // The settings that it names, by key.
  std::set<std::string> names() const;

  struct Node;

 private:
  std::string text_, origin_;
  std::shared_ptr<const Node> root_;
};

}  // namespace quintet
