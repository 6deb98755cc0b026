// What the order of a program is: ops on one stream follow each other, `waits` join streams, and
// nothing else orders anything. The memory plan and the verifier both stand on this one definition.
#pragma once

#include <array>
#include <vector>

#include "program/program.h"

namespace quintet {

class Ordering {
 public:
  explicit Ordering(const Program& program);

  // Whether `before` is certain to have finished when `after` starts.
  bool ordered(OpId before, OpId after) const {
    return finished_before(after, streams_[static_cast<std::size_t>(before)]) >= before;
  }
  // The last op of a stream that is certain to have finished when `op` starts; -1 if none.
  OpId finished_before(OpId op, Stream stream) const {
    return clocks_[static_cast<std::size_t>(op)][static_cast<std::size_t>(stream)];
  }

 private:
  std::vector<std::array<OpId, kStreamCount>> clocks_;
  std::vector<Stream> streams_;
};

}  // namespace quintet
