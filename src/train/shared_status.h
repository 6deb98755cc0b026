// What one rank finds, all ranks hear: so that all go on or all end, with the same error.
#pragma once

#include <string>

#include "base/result.h"
#include "parallel/communicator.h"

namespace quintet {

// Success if all ranks have it; else the failure of the lowest rank that has one, on all of them.
// Called by all ranks together.
inline Status agree(World& world, const Status& mine) {
  if (world.minimum(mine.ok() ? 1 : 0) == 1) return {};
  const auto texts = world.gather(
      mine.ok() ? std::string()
                : fmt::format("{} {}", static_cast<int>(mine.error().code), mine.error().message));
  std::string first;
  for (std::size_t r = 0; r < texts.size() && first.empty(); ++r) first = texts[r];
  first = world.broadcast(first);
  const std::size_t space = first.find(' ');
  return Error{static_cast<ErrorCode>(std::stoi(first.substr(0, space))), first.substr(space + 1)};
}

}  // namespace quintet
