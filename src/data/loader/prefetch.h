// Makes batches ahead of time, on threads of its own, so that training does not wait for data; and
// measures how long it did wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"
#include "data/batch.h"

namespace quintet {

struct PrefetchOptions {
  std::int64_t sequences = 1, source_length = 0, target_length = 0;  // of every batch
  int threads = 2;
  int depth = 4;  // batches made ahead, at most
};

// next() is for one thread. The source's fill() is called from several at a time and must allow it.
class Prefetcher {
 public:
  // Batch n holds the samples from first_sample(n) on; batches come as n = 0, 1, 2, ... Called by
  // several threads at a time: a function of n alone.
  Prefetcher(BatchSource& source, std::function<std::int64_t(std::int64_t)> first_sample,
             const PrefetchOptions& options);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  // The next batch; valid until the next call.
  Result<const Batch*> next();

  // Seconds that next() has waited, in all.
  double stalled_seconds() const { return stalled_; }
  // The batches' memory. It stays where it is as long as the prefetcher lives, so that it can be
  // registered with a device once.
  std::span<const Batch> buffers() const { return buffers_; }

 private:
  void work();

  BatchSource& source_;
  std::function<std::int64_t(std::int64_t)> first_sample_;
  std::mutex mutex_;
  std::condition_variable made_, freed_;
  std::vector<Batch> buffers_;  // batch n is in buffer n % size
  std::vector<bool> ready_;     // by buffer
  // By buffer: how making it went. What was thrown is thrown again where somebody can catch it.
  std::vector<Status> statuses_;
  std::vector<std::exception_ptr> crashes_;
  std::int64_t next_to_make_ = 0;
  std::int64_t next_to_give_ = 0;  // those before it may be overwritten, but for the one in use
  bool stop_ = false;
  double stalled_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace quintet
