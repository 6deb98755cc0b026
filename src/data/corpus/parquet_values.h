// Decoders of Parquet's encodings, which read from bytes in memory and never past them. They stop,
// saying so, where the bytes are not what they should be.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {

// Runs of equal numbers and runs of packed bits, mixed (RLE / bit-packed hybrid).
class HybridReader {
 public:
  HybridReader() = default;
  HybridReader(std::string_view bytes, unsigned width) : bytes_(bytes), width_(width) {}

  // False: there are no more.
  bool next(std::uint32_t& value) {
    if (left_ == 0 && !begin_run()) return false;
    --left_;
    if (repeated_) {
      value = value_;
      return true;
    }
    if (width_ == 0) {
      value = 0;
      return true;
    }
    while (bits_ < width_) {
      if (at_ == bytes_.size()) return false;
      buffer_ |= std::uint64_t{static_cast<std::uint8_t>(bytes_[at_++])} << bits_;
      bits_ += 8;
    }
    value = static_cast<std::uint32_t>(buffer_ & ((std::uint64_t{1} << width_) - 1));
    buffer_ >>= width_;
    bits_ -= width_;
    return true;
  }

 private:
  bool begin_run() {
    std::uint64_t head = 0;
    unsigned shift = 0;
    for (std::uint8_t part = 0x80; part >= 0x80; shift += 7) {
      if (at_ == bytes_.size() || shift > 35) return false;
      part = static_cast<std::uint8_t>(bytes_[at_++]);
      head |= std::uint64_t{part & 0x7FU} << shift;
    }
    repeated_ = (head & 1) == 0;
    left_ = repeated_ ? head >> 1 : (head >> 1) * 8;
    if (left_ == 0) return false;
    buffer_ = bits_ = 0;
    if (!repeated_) return true;
    const std::size_t size = (width_ + 7) / 8;
    if (bytes_.size() - at_ < size) return false;
    value_ = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value_ |= std::uint32_t{static_cast<std::uint8_t>(bytes_[at_++])} << (8 * i);
    }
    return true;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  unsigned width_ = 0, bits_ = 0;
  std::uint64_t buffer_ = 0, left_ = 0;
  std::uint32_t value_ = 0;
  bool repeated_ = false;
};

// Decodes DELTA_BINARY_PACKED lengths at the beginning of `bytes`, at most `most` of them, and
// removes what it read. False: the bytes are not valid, or a length is below zero.
bool read_delta_lengths(std::string_view& bytes, std::size_t most,
                        std::vector<std::uint32_t>& lengths);

}  // namespace quintet
