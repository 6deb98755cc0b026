#include "train/run_signals.h"

#include <algorithm>
#include <atomic>
#include <ctime>

#include <unistd.h>

namespace quintet {
namespace {

std::atomic<int> alive = 0;  // RunSignals objects
std::atomic<bool> stop_requested = false, save_requested = false;
std::atomic<long> stop_second = 0;
static_assert(std::atomic<long>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "set by signal handlers");

long seconds_now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

void handle(int signal) {
  if (signal == SIGUSR1) {
    save_requested = true;
    return;
  }
  // Launchers and batch systems often send the same request twice.
  if (stop_requested && (signal == SIGINT || signal == SIGTERM) &&
      seconds_now() > stop_second + 1) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  if (!stop_requested) stop_second = seconds_now();
  stop_requested = true;
}

}  // namespace

RunSignals::RunSignals() {
  if (alive++ == 0) stop_requested = save_requested = false;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) continue;
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

RunSignals::~RunSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  --alive;
}

Request agree_on_request(World& world, bool time_is_up) {
  Request mine = Request::kNothing;
  if (save_requested.exchange(false)) mine = Request::kSave;
  if (time_is_up && world.rank() == 0) mine = Request::kTimeUp;
  if (stop_requested) mine = Request::kStop;
  return static_cast<Request>(world.minimum(static_cast<int>(mine)));
}

bool agree_on_stop(World& world) {
  return world.minimum(stop_requested ? 0 : 1) == 0;
}

bool stop_was_requested() {
  return stop_requested;
}

}  // namespace quintet
