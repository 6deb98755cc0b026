// The one place where kernels meet threads: a range split into equal pieces over the OpenMP team.
//
// Bodies must write disjoint data; results must not depend on how the range was split (reductions
// use a fixed number of pieces, see reduce_in_blocks). Nested calls run on the calling thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include <omp.h>

#if defined(__SANITIZE_THREAD__)
// libgomp is not instrumented, so ThreadSanitizer does not see its fork and join. Telling it about
// them here keeps real races between bodies visible and the runtime's own synchronisation silent.
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#define QT_TSAN_ACQUIRE(address) __tsan_acquire(address)
#define QT_TSAN_RELEASE(address) __tsan_release(address)
#else
#define QT_TSAN_ACQUIRE(address) static_cast<void>(address)
#define QT_TSAN_RELEASE(address) static_cast<void>(address)
#endif

namespace quintet {

// Threads a parallel_for may use now.
inline int thread_count() {
  return omp_in_parallel() ? 1 : omp_get_max_threads();
}

// Elements an elementwise kernel should have for each thread: waking one up takes some microseconds.
inline constexpr std::int64_t kElementGrain = 1 << 13;
// The same in rows of `cols` elements.
inline std::int64_t row_grain(std::int64_t cols) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(cols, 1));
}

// Calls body(begin, end, thread) over [0, count) cut at multiples of `grain`; at most one call a
// thread.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<std::int64_t>(thread_count(), grains));
  if (threads <= 1) {
    if (count > 0) body(std::int64_t{0}, count, 0);
    return;
  }
  char fork = 0, join = 0;
  QT_TSAN_RELEASE(&fork);
#pragma omp parallel num_threads(threads)
  {
    QT_TSAN_ACQUIRE(&fork);
    const int thread = omp_get_thread_num();
    const std::int64_t begin = grains * thread / threads * grain;
    const std::int64_t end = std::min(count, grains * (thread + 1) / threads * grain);
    if (begin < end) body(begin, end, thread);
    QT_TSAN_RELEASE(&join);
  }
  QT_TSAN_ACQUIRE(&join);
}

// Calls body(item, thread) for every item of [0, count), handed out one by one: for items of unequal
// cost. `share` = false does them all on the calling thread, for work too small to share.
template <class Body>
void parallel_items(std::int64_t count, bool share, const Body& body) {
  const int threads = share ? static_cast<int>(std::min<std::int64_t>(thread_count(), count)) : 1;
  if (threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  char fork = 0, join = 0;
  QT_TSAN_RELEASE(&fork);
#pragma omp parallel num_threads(threads)
  {
    QT_TSAN_ACQUIRE(&fork);
    const int thread = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1) nowait
    for (std::int64_t i = 0; i < count; ++i) body(i, thread);
    QT_TSAN_RELEASE(&join);
  }
  QT_TSAN_ACQUIRE(&join);
}

// Sums body(begin, end) over fixed blocks of [0, count), always in the same order: the result is
// the same whatever the number of threads. Partial sums are doubles, at most kReduceBlocks of them.
inline constexpr std::int64_t kReduceBlocks = 64;
template <class Body>
double reduce_in_blocks(std::int64_t count, const Body& body) {
  double partial[kReduceBlocks] = {};
  const std::int64_t blocks = std::min(kReduceBlocks, (count + 4095) / 4096);
  parallel_for(blocks, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t block = first; block < last; ++block) {
      partial[block] = body(count * block / blocks, count * (block + 1) / blocks);
    }
  });
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += partial[block];
  return sum;
}

}  // namespace quintet
