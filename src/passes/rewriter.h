// Inserts ops into a program's list, and takes some out, without losing track of who waits for
// whom.
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
        removed_(old_count_, false),
        next_key_(static_cast<OpId>(old_count_)) {}

  OpId insert(std::size_t position, Op op) {
    before_.at(position).push_back({std::move(op), next_key_});
    return next_key_++;
  }
  // Takes out an op of the compute stream whose results nobody reads. Who waits for it waits for
  // the one before it instead, and the one after it for what it waits for.
  void remove(std::size_t position) {
    Op& op = program_.ops.at(position);
    QT_CHECK(op.stream == Stream::kCompute, "op {} is not of the compute stream", position);
    op.inputs.clear();
    op.outputs.clear();
    removed_[position] = true;
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
    OpId last_compute = -1;
    std::vector<OpId> waits_of_removed;
    const auto put = [&](Op op, OpId key) {
      const auto here = static_cast<OpId>(ops.size());
      if (op.stream == Stream::kCompute) {
        op.waits.insert(op.waits.end(), waits_of_removed.begin(), waits_of_removed.end());
        waits_of_removed.clear();
        last_compute = here;
      }
      place[static_cast<std::size_t>(key)] = here;
      ops.push_back(std::move(op));
    };
    for (std::size_t i = 0; i <= old_count_; ++i) {
      for (auto& [op, key] : before_[i]) put(std::move(op), key);
      if (i == old_count_) break;
      if (removed_[i]) {
        place[i] = last_compute;
        const auto& waits = program_.ops[i].waits;
        waits_of_removed.insert(waits_of_removed.end(), waits.begin(), waits.end());
      } else {
        put(std::move(program_.ops[i]), static_cast<OpId>(i));
      }
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (OpId& wait : ops[i].waits) {
        wait = place[static_cast<std::size_t>(wait)];
        QT_CHECK(wait < static_cast<OpId>(i), "op {} would wait for a later one", i);
      }
      std::erase(ops[i].waits, -1);  // for one that was removed, and none before it
    }
    program_.ops = std::move(ops);
  }

 private:
  Program& program_;
  const std::size_t old_count_;
  std::vector<std::vector<std::pair<Op, OpId>>> before_;
  std::vector<bool> removed_;
  OpId next_key_;
};

}  // namespace quintet
