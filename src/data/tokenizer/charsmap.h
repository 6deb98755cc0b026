// The normalization rules inside a model ("precompiled_charsmap"): a Darts double array of byte
// strings and what replaces each. The longest rule that matches wins. The file's trie is used as it
// stands, every step checked against its bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

class CharsMap {
 public:
  struct Match {
    std::size_t length = 0;  // of the text that is replaced; 0: no rule matches
    std::string_view replacement;
  };
  // A place in the trie.
  struct Cursor {
    std::uint32_t position = 0;
    bool rule = false;        // a rule ends here...
    std::uint32_t value = 0;  // ...with its replacement at this offset
  };

  // No rules: text stays as it is.
  CharsMap() = default;
  static Result<CharsMap> parse(std::string_view blob, const std::string& name);

  bool empty() const { return units_.empty(); }
  Match longest(const char* at, const char* end) const;

  Cursor root() const;
  // Follows one byte; false where no rule continues with it.
  bool step(Cursor& cursor, std::uint8_t byte) const;
  // All replacements, each ended by a NUL.
  std::string_view replacements() const { return replacements_; }

 private:
  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace quintet
