// A stream of random numbers (philox.h) for each use, language and number.
#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "base/philox.h"

namespace quintet {

inline std::uint64_t random_stream(std::string_view use, std::string_view language,
                                   std::uint64_t number) {
  return stream_of(fmt::format("{}:{}", use, language)) + number * 0x9E3779B97F4A7C15;
}

}  // namespace quintet
