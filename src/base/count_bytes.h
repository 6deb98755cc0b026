// Counts the bytes of a text that satisfy a condition, many at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quintet {

template <class Condition>
std::size_t count_bytes(std::string_view text, const Condition& condition) {
  // Compilers make vectors of the type that is added up: std::count_if would have four counters in
  // a vector, this has thirty-two. A part is short enough that none of them overflows.
  constexpr std::size_t kPart = 255;
  std::size_t total = 0;
  while (!text.empty()) {
    const std::size_t size = std::min(text.size(), kPart);
    std::uint8_t count = 0;
    for (std::size_t i = 0; i < size; ++i) {
      count = static_cast<std::uint8_t>(count + (condition(text[i]) ? 1 : 0));
    }
    total += count;
    text.remove_prefix(size);
  }
  return total;
}

}  // namespace quintet
