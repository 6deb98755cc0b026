// Inserts ops into a program's list without losing track of who waits for whom.
#pragma once

#include <utility>
#include <vector>

#include "base/check.h"
#include "program/program.h"

namespace quintet {

// Positions are those of the list as it was; new ops are put before a position, in the order of
// insertion. Until apply(), ops are known by keys: an old op by its position, a new one by what
// insert() returned.
class Rewriter {
 public:
  explicit Rewriter(Program& program)
      : program_(program),
        old_count_(program.ops.size()),
        before_(old_count_ + 1),
        next_key_(static_cast<OpId>(old_count_)) {}

  OpId insert(std::size_t position, Op op) {
    before_.at(position).push_back({std::move(op), next_key_});
    return next_key_++;
  }
  std::size_t end() const { return old_count_; }
  // The last compute op before a position, as a key; -1 if there is none.
  OpId last_compute_before(std::size_t position) const {
    while (position > 0 && program_.ops[position - 1].stream != Stream::kCompute) --position;
    return static_cast<OpId>(position) - 1;
  }
  // Makes the first old compute op at or after a position wait for `key`; does nothing at the end.
  void wait_from(std::size_t position, OpId key) {
    while (position < old_count_ && program_.ops[position].stream != Stream::kCompute) ++position;
    if (position < old_count_) program_.ops[position].waits.push_back(key);
  }

  void apply() {
    std::vector<Op> ops;
    std::vector<OpId> place(static_cast<std::size_t>(next_key_), -1);
    for (std::size_t i = 0; i <= old_count_; ++i) {
      for (auto& [op, key] : before_[i]) {
        place[static_cast<std::size_t>(key)] = static_cast<OpId>(ops.size());
        ops.push_back(std::move(op));
      }
      if (i == old_count_) break;
      place[i] = static_cast<OpId>(ops.size());
      ops.push_back(std::move(program_.ops[i]));
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (OpId& wait : ops[i].waits) {
        wait = place[static_cast<std::size_t>(wait)];
        QT_CHECK(wait >= 0 && wait < static_cast<OpId>(i), "op {} would wait for a later one", i);
      }
    }
    program_.ops = std::move(ops);
  }

 private:
  Program& program_;
  const std::size_t old_count_;
  std::vector<std::vector<std::pair<Op, OpId>>> before_;
  OpId next_key_;
};

}  // namespace quintet
