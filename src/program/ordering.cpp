#include "program/ordering.h"

#include <algorithm>

namespace quintet {

Ordering::Ordering(const Program& program) {
  std::array<OpId, kStreamCount> none{};
  none.fill(-1);
  std::array<OpId, kStreamCount> last = none;
  clocks_.assign(program.ops.size(), none);
  streams_.reserve(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    auto& clock = clocks_[i];
    const auto join = [&](OpId before) {
      const auto& theirs = clocks_[static_cast<std::size_t>(before)];
      for (std::size_t s = 0; s < kStreamCount; ++s) clock[s] = std::max(clock[s], theirs[s]);
      auto& own = clock[static_cast<std::size_t>(streams_[static_cast<std::size_t>(before)])];
      own = std::max(own, before);
    };
    if (const OpId previous = last[static_cast<std::size_t>(op.stream)]; previous >= 0)
      join(previous);
    for (const OpId wait : op.waits) join(wait);
    last[static_cast<std::size_t>(op.stream)] = static_cast<OpId>(i);
    streams_.push_back(op.stream);
  }
}

}  // namespace quintet
