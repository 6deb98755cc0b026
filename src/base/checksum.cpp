#include "base/checksum.h"

#include <charconv>

#include <fmt/format.h>
#include <xxhash.h>

namespace quintet {

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

std::optional<std::uint64_t> parse_checksum(std::string_view text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  std::uint64_t sum = 0;
  std::from_chars(text.data(), text.data() + text.size(), sum, 16);
  return sum;
}

}  // namespace quintet
