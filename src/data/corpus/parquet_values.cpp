#include "data/corpus/parquet_values.h"

#include <algorithm>

namespace quintet {
namespace {

bool read_varint(std::string_view& bytes, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) return false;
    const auto part = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{part & 0x7FU} << shift;
    if (part < 0x80) return true;
  }
  return false;
}

// The bits of a number, least significant first.
std::uint64_t bits_at(std::string_view bytes, std::uint64_t bit, unsigned width) {
  std::uint64_t value = 0;
  for (unsigned done = 0; done < width;) {
    const std::uint64_t at = bit + done;
    const unsigned offset = static_cast<unsigned>(at % 8);
    const unsigned some = std::min(8 - offset, width - done);
    const std::uint64_t part =
        (static_cast<std::uint8_t>(bytes[at / 8]) >> offset) & ((1U << some) - 1);
    value |= part << done;
    done += some;
  }
  return value;
}

}  // namespace

bool read_delta_lengths(std::string_view& bytes, std::size_t most,
                        std::vector<std::uint32_t>& lengths) {
  lengths.clear();
  std::uint64_t block = 0, parts = 0, count = 0, first = 0;
  if (!read_varint(bytes, block) || !read_varint(bytes, parts) || !read_varint(bytes, count) ||
      !read_varint(bytes, first)) {
    return false;
  }
  if (parts == 0 || parts > 512 || block == 0 || block > (1 << 20) || block % parts != 0 ||
      block / parts % 32 != 0 || count > most) {
    return false;
  }
  const auto signed_of = [](std::uint64_t zigzag) {
    return (zigzag >> 1) ^ (~(zigzag & 1) + 1);  // wraps around, as the format says
  };
  const auto add = [&](std::uint64_t value) {
    if (value > INT32_MAX) return false;
    lengths.push_back(static_cast<std::uint32_t>(value));
    return true;
  };
  if (count == 0) return true;
  std::uint64_t value = signed_of(first);
  if (!add(value)) return false;
  const std::uint64_t each = block / parts;
  while (lengths.size() < count) {
    std::uint64_t least = 0;
    if (!read_varint(bytes, least) || bytes.size() < parts) return false;
    const std::string_view widths = bytes.substr(0, parts);
    bytes.remove_prefix(parts);
    for (std::uint64_t part = 0; part < parts && lengths.size() < count; ++part) {
      const unsigned width = static_cast<std::uint8_t>(widths[part]);
      const std::uint64_t size = each * width / 8;
      if (width > 64 || bytes.size() < size) return false;
      for (std::uint64_t i = 0; i < each && lengths.size() < count; ++i) {
        value += signed_of(least) + bits_at(bytes, i * width, width);
        if (!add(value)) return false;
      }
      bytes.remove_prefix(size);
    }
  }
  return true;
}

}  // namespace quintet
