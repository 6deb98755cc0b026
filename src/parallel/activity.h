// What a rank's main thread is doing at the moment, for the watchdog's thread beside it: progress
// is part of the sign of life. Entering costs two relaxed stores, so that an executor can do it for
// every op.
#pragma once

#include <atomic>
#include <cstdint>

namespace quintet {

class Activity {
 public:
  // How long something may take before it counts as stuck (watchdog.h).
  enum class Patience : std::uint8_t {
    kStep,  // an ordinary part of a step
    kLong   // start-up, checkpoints, data: there are no earlier steps to compare it with
  };
  struct Now {
    const char* what = "";
    std::int32_t op = -1;  // of the step's program; -1: none
    bool waiting = false;  // for other ranks
    Patience patience = Patience::kLong;
    std::uint64_t count = 0;  // changes whenever something is entered
  };

  // For the main thread. `what` must live for ever.
  void enter_op(std::int32_t op, bool waiting) { set("", op, waiting, Patience::kStep); }
  void enter(const char* what, bool waiting, Patience patience) {
    set(what, -1, waiting, patience);
  }

  // For the watchdog. The pieces may belong to two activities that follow each other at once.
  Now now() const {
    const std::uint64_t state = state_.load(std::memory_order_relaxed);
    Now result;
    result.what = what_.load(std::memory_order_relaxed);
    result.waiting = (state & 1) != 0;
    result.patience = static_cast<Patience>((state >> 1) & 1);
    result.op = static_cast<std::int32_t>((state >> 2) & kOpMask) - 1;
    result.count = state >> 34;
    return result;
  }

 private:
  static constexpr std::uint64_t kOpMask = 0xFFFFFFFF;
  void set(const char* what, std::int32_t op, bool waiting, Patience patience) {
    what_.store(what, std::memory_order_relaxed);
    ++count_;
    state_.store(count_ << 34 | (static_cast<std::uint64_t>(op + 1) & kOpMask) << 2 |
                     static_cast<std::uint64_t>(patience) << 1 |
                     static_cast<std::uint64_t>(waiting),
                 std::memory_order_relaxed);
  }
  std::uint64_t count_ = 0;  // the main thread's
  std::atomic<std::uint64_t> state_{static_cast<std::uint64_t>(Patience::kLong) << 1};
  std::atomic<const char*> what_{"starting"};
};

}  // namespace quintet
