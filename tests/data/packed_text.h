// Text compressed as files have it, beyond what tests/support/folders.h makes.
#pragma once

#include <stdexcept>
#include <string>

#include <bzlib.h>
#include <lzma.h>

namespace quintet {

inline std::string xz(const std::string& text) {
  std::string out(::lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t size = 0;
  if (::lzma_easy_buffer_encode(
          1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(text.data()),
          text.size(), reinterpret_cast<std::uint8_t*>(out.data()), &size, out.size()) != LZMA_OK) {
    throw std::runtime_error("xz");
  }
  out.resize(size);
  return out;
}

inline std::string bzip2(const std::string& text) {
  std::string out(text.size() * 2 + 1000, '\0');
  auto size = static_cast<unsigned>(out.size());
  if (::BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(text.data()),
                                 static_cast<unsigned>(text.size()), 1, 0, 0) != BZ_OK) {
    throw std::runtime_error("bzip2");
  }
  out.resize(size);
  return out;
}

}  // namespace quintet
