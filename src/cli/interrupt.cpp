#include "cli/interrupt.h"

#include <csignal>

namespace quintet {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

void handle(int) {
  interrupted = true;
}

}  // namespace

const std::atomic<bool>& interrupt_flag() {
  struct sigaction action {};
  action.sa_handler = handle;
  // The default comes back: whoever asks twice means it.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A closed terminal, but for those who asked to survive it (nohup).
  struct sigaction hangup {};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
    ::sigaction(SIGHUP, &action, nullptr);
  }
  return interrupted;
}

}  // namespace quintet
