// CRC-32C (Castagnoli), the checksum of TensorFlow's record files.
#pragma once

#include <cstdint>
#include <string_view>

namespace quintet {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace quintet
