// Times for benchmarks: what the clock on the wall says, and the processor time taken. On a machine
// that others use as well only the second is steady, and only for one thread the two mean the same.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

namespace quintet {

struct Times {
  double wall = 0, cpu = 0;  // seconds
};

class Stopwatch {
 public:
  enum class Of { kThread, kProcess };
  explicit Stopwatch(Of of)
      : clock_(of == Of::kThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID) {
    began_ = now();
  }
  Times elapsed() const {
    const Times end = now();
    return {end.wall - began_.wall, end.cpu - began_.cpu};
  }

 private:
  Times now() const {
    timespec cpu{};
    ::clock_gettime(clock_, &cpu);
    return {
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
        static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec)};
  }
  clockid_t clock_;
  Times began_;
};

// The best of several rounds: what disturbs a measurement only ever adds to it.
struct Rounds {
  std::vector<Times> rounds;

  void add(const Times& times) { rounds.push_back(times); }
  Times best() const {
    Times best{1e300, 1e300};
    for (const Times& times : rounds) {
      best = {std::min(best.wall, times.wall), std::min(best.cpu, times.cpu)};
    }
    return best;
  }
};

}  // namespace quintet
