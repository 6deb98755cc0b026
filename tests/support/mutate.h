// Damages bytes as files get damaged, for tests of parsers: flips, cuts, repeats, splices.
#pragma once

#include <string>

#include "base/philox.h"

namespace quintet {

inline std::string mutate(std::string bytes, PhiloxSequence& random) {
  const auto any = [&](std::size_t below) {
    return random.below(static_cast<std::uint32_t>(below == 0 ? 1 : below));
  };
  for (std::uint32_t i = 0, changes = 1 + random.below(6); i < changes; ++i) {
    if (bytes.empty()) return bytes;
    const std::size_t at = any(bytes.size());
    switch (random.below(7)) {
      case 0:
        bytes[at] = static_cast<char>(random.next());
        break;
      case 1:
        bytes[at] ^= static_cast<char>(1 << random.below(8));
        break;
      case 2:  // the values at which lengths go wrong
        bytes[at] = "\x00\x01\x7f\x80\xff"[random.below(5)];
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.erase(at, 1 + any(16));
        break;
      case 5:
        bytes.insert(at, bytes.substr(any(bytes.size()), any(32)));
        break;
      default:
        bytes.insert(at, 1 + any(9),
                     static_cast<char>(random.below(2) == 0 ? 0xFF : random.next()));
    }
  }
  return bytes;
}

}  // namespace quintet
