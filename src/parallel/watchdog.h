// Notices when a rank of a run fails, dies, falls silent or gets stuck, and ends all ranks with one
// message, which names the first cause, and its exit code. Works beside MPI, which may hang when a
// peer is gone: every rank has a thread that keeps a connection to rank 0's and tells it, a few
// times a second, what its main thread is doing.
//
// - Connections are made while the run starts, to addresses that rank 0 announces over MPI, with a
//   secret that travels the same way. Rank 0 then stops listening; whoever does not know the secret
//   is not listened to before either.
// - Time counts only while the watchdog's own thread gets to run: ranks that were suspended
//   together (SLURM, a paused machine) go on as if nothing had been.
// - A rank is lost when its connection closes or nothing is heard of it for `timeout` seconds. It
//   is stuck when what it does takes longer than `timeout` and five times the longest step so far
//   (before the first step's end, and in what is no part of a step: twenty times `timeout`).
//
// docs/faults.md has the table of what leads to what.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <time.h>

#include "base/result.h"
#include "parallel/activity.h"
#include "parallel/communicator.h"
#include "parallel/line_socket.h"

namespace quintet {

class Watchdog {
 public:
  // Called by all ranks together; rank 0's `timeout` holds for all. A rank alone is watched, too:
  // it can get stuck.
  static Result<std::unique_ptr<Watchdog>> start(World& world, double timeout);
  // As finish().
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // For the main thread, and whoever works for it.
  Activity& activity() { return activity_; }
  void begin_step(std::int64_t step);
  void end_step();
  // How an op of the step's program is called in messages; null: no longer.
  void name_ops(std::function<std::string(std::int32_t)> name);

  // This rank cannot go on. Alone: gives the error back. Otherwise all ranks end, and this does not
  // return. `consequence`: another rank's failure is behind it, and is named if it shows up.
  Error fail(const Error& error, bool consequence = false);
  // This rank is done; returns when all are.
  void finish();

 private:
  struct Report {
    std::int32_t rank = 0;
    ErrorCode code = ErrorCode::kPeerLost;
    bool consequence = false;
    bool failed = false;  // said so itself; `text` is then its error, else a whole sentence
    std::int64_t step = 0;
    std::string text;
  };
  // How a rank's main thread is getting on.
  struct Pulse {
    std::int64_t step = 0;
    bool waiting = true;
    double age = 0, limit = 1e9;  // seconds in what it is doing; from when on that is too long
    double still = 0;             // seconds for which it has had no processor time at all
    std::string doing;
  };
  struct Peer {
    LineSocket socket;
    double last_heard = 0;
    bool done = false;
    Pulse pulse;
  };

  Watchdog() = default;
  Result<std::string> open_listeners(bool one_host);
  Status join(const std::string& announcement);
  void tick();
  Pulse take_pulse();
  void wait(const std::vector<int>& descriptors);
  void wake();

  void run_hub();
  void say_last(const std::string& line);
  void admit_ranks();
  void hear(std::int32_t rank, Peer& peer);
  void look_for_stuck();
  void decide();
  [[noreturn]] void end_all(const Report& cause, bool everyone);

  void run_member();
  [[noreturn]] void end_process(ErrorCode code, const std::string& message, bool speak) const;

  std::int32_t rank_ = 0, size_ = 1;
  bool speaks_ = false;  // prints where rank 0 cannot: the first other rank of each host
  // How long it waits before it ends because rank 0 is gone: who prints does so before others end,
  // since the launcher kills all that are left when one ends.
  double patience_ = 0;
  double timeout_ = 60;
  std::string secret_;
  int wake_ = -1;  // an eventfd

  Activity activity_;
  std::atomic<std::int64_t> step_{0};
  std::atomic<double> longest_step_{0};
  double step_began_ = 0;
  std::mutex mutex_;  // of the two below
  std::function<std::string(std::int32_t)> op_name_;
  std::optional<Report> failure_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> abandoned_{false};  // rank 0's: the run does not start

  // The thread's own.
  double clock_ = 0, last_tick_ = 0;    // seconds that the thread has been running
  std::atomic<double> shown_clock_{0};  // the same, for the main thread
  std::uint64_t seen_activity_ = 0;
  double activity_since_ = 0, last_beat_ = -1;
  double slept_at_ = -1;  // when it last was suspended for about the timeout, or longer
  // Of the main thread: its processor time, and when that was last seen to grow.
  ::clockid_t main_thread_ = CLOCK_THREAD_CPUTIME_ID;
  std::int64_t main_ran_ = 0;
  double main_ran_at_ = 0;
  // Rank 0's.
  std::vector<LineSocket> listeners_;
  struct Stranger {
    LineSocket socket;
    double since = 0;
  };
  std::vector<Stranger> strangers_;  // connected, and have not said who they are
  std::vector<Peer> peers_;          // by rank; the first is unused
  std::vector<Report> reports_;      // in the order they came
  double first_report_ = 0;
  // Other ranks'.
  LineSocket hub_;

  std::thread thread_;
};

}  // namespace quintet
