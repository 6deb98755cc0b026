// What the outside asks of a run while it trains: by signals, or because its time is up.
//
//   SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR2   end after the step at hand, with a checkpoint
//   SIGUSR1                                     save a checkpoint and go on
//
// A second SIGINT or SIGTERM, a second or more after the first, ends the process at once. A SIGHUP
// that was ignored when the process started (nohup) stays ignored.
#pragma once

#include <array>
#include <csignal>

#include "parallel/communicator.h"

namespace quintet {

// The strongest first: the smallest of the ranks' wishes is everybody's.
enum class Request : int { kStop = 0, kTimeUp = 1, kSave = 2, kNothing = 3 };

// While one is alive, the signals are requests instead of the end of the process.
class RunSignals {
 public:
  RunSignals();
  ~RunSignals();
  RunSignals(const RunSignals&) = delete;
  RunSignals& operator=(const RunSignals&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// What any rank was asked since the last call. A request to stop stays. Called by all ranks
// together; `time_is_up` counts where rank 0 says so.
Request agree_on_request(World& world, bool time_is_up);
// The same for the request to stop alone: others wait for agree_on_request.
bool agree_on_stop(World& world);
// Whether this rank was asked to stop: to look at between collective calls.
bool stop_was_requested();

}  // namespace quintet
