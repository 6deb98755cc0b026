// Notices when a rank of a run dies or falls silent, and ends all others: with a message that says
// which rank, in which step, and exit code 8. Works beside MPI, which may hang when a peer is gone:
// every rank has a thread that keeps a connection to rank 0, sends a sign of life a few times a
// second, and ends the process when it is told of a loss.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"
#include "parallel/communicator.h"

namespace quintet {

class Watchdog {
 public:
  // Called by all ranks together. `timeout`: seconds of silence after which a rank counts as lost.
  // A rank alone needs none and gets one that does nothing.
  static Result<std::unique_ptr<Watchdog>> start(World& world, double timeout);
  // Says goodbye if neither finish() nor fail() did.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The step at hand, for messages.
  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }
  // This rank is about to end with an error: the others will, too, and tell why.
  void fail(const std::string& why);
  // This rank is done.
  void finish();

 private:
  Watchdog() = default;
  void run_server();
  void run_client();
  [[noreturn]] void end_process(std::int64_t lost_rank, std::int64_t step,
                                const std::string& how) const;

  std::int32_t rank_ = 0, size_ = 1;
  double timeout_ = 60;
  int socket_ = -1;  // rank 0: listens; others: connected to rank 0
  std::atomic<std::int64_t> step_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::string why_;
  std::thread thread_;
};

}  // namespace quintet
