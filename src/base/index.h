// Sizes and numbers of things are signed here, as arithmetic wants them; containers count unsigned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quintet {

constexpr std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace quintet
