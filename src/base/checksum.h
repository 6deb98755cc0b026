// Checksums of stored bytes: XXH3, 64 bits, written as 16 hexadecimal digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quintet {

std::uint64_t checksum(std::span<const std::byte> bytes);
inline std::uint64_t checksum(std::string_view text) {
  return checksum(std::as_bytes(std::span(text)));
}

std::string checksum_text(std::uint64_t sum);
// Nothing where the text is no checksum.
std::optional<std::uint64_t> parse_checksum(std::string_view text);

}  // namespace quintet
