// The one place where kernels meet threads: a range split into equal pieces over the OpenMP team.
//
// Bodies must write disjoint data; results must not depend on how the range was split (reductions
// use a fixed number of pieces, see reduce_in_blocks). Nested calls run on the calling thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <omp.h>

#if defined(__SANITIZE_THREAD__)
#include <thread>
#include <vector>
#endif

namespace quintet {

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer cannot see how libgomp synchronises its team and would report every region. Under
// it the team is plain threads: the bodies, which are what it should look at, stay the same.
inline thread_local bool in_team = false;

template <class Body>
void run_team(int threads, const Body& body) {
  std::vector<std::thread> team;
  for (int thread = 0; thread < threads; ++thread) {
    team.emplace_back([&body, thread] {
      in_team = true;
      body(thread);
    });
  }
  for (std::thread& member : team) member.join();
}
inline bool inside_team() {
  return in_team;
}
#else
// Calls body(thread) on each of `threads` threads and waits for all of them.
template <class Body>
void run_team(int threads, const Body& body) {
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num());
}
inline bool inside_team() {
  return omp_in_parallel() != 0;
}
#endif

// Threads a parallel_for may use now.
inline int thread_count() {
  return inside_team() ? 1 : omp_get_max_threads();
}

// Elements an elementwise kernel should have for each thread: waking one up takes microseconds.
inline constexpr std::int64_t kElementGrain = 1 << 14;
// The same in rows of `cols` elements.
inline std::int64_t row_grain(std::int64_t cols) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(cols, 1));
}

// Calls body(begin, end, thread) over [0, count) cut at multiples of `grain`, at most once a
// thread.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<std::int64_t>(thread_count(), grains));
  if (threads <= 1) {
    if (count > 0) body(std::int64_t{0}, count, 0);
    return;
  }
  run_team(threads, [&](int thread) {
    const std::int64_t begin = grains * thread / threads * grain;
    const std::int64_t end = std::min(count, grains * (thread + 1) / threads * grain);
    if (begin < end) body(begin, end, thread);
  });
}

// Calls body(item, thread) for every item of [0, count), handed out one by one: for items of
// unequal cost. `share` = false does them all on the calling thread, for work too small to share.
template <class Body>
void parallel_items(std::int64_t count, bool share, const Body& body) {
  const int threads = share ? static_cast<int>(std::min<std::int64_t>(thread_count(), count)) : 1;
  if (threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  run_team(threads, [&](int thread) {
    for (std::int64_t i = next++; i < count; i = next++) body(i, thread);
  });
}

// Sums body(begin, end) over fixed blocks of [0, count), always in the same order: the result is
// the same whatever the number of threads. Partial sums are doubles, at most kReduceBlocks of them.
inline constexpr std::int64_t kReduceBlocks = 64;
template <class Body>
double reduce_in_blocks(std::int64_t count, const Body& body) {
  double partial[kReduceBlocks] = {};
  const std::int64_t blocks = std::min(kReduceBlocks, (count + 4095) / 4096);
  parallel_for(blocks, 4, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t block = first; block < last; ++block) {
      partial[block] = body(count * block / blocks, count * (block + 1) / blocks);
    }
  });
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += partial[block];
  return sum;
}

}  // namespace quintet
