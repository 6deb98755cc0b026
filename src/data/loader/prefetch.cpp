#include "data/loader/prefetch.h"

#include <chrono>

#include "base/check.h"

namespace quintet {

Prefetcher::Prefetcher(BatchSource& source, std::function<std::int64_t(std::int64_t)> first_sample,
                       const PrefetchOptions& options)
    : source_(source),
      first_sample_(std::move(first_sample)),
      // One more than are made ahead: the one that the caller holds.
      buffers_(static_cast<std::size_t>(options.depth) + 1),
      ready_(buffers_.size(), false),
      statuses_(buffers_.size()),
      crashes_(buffers_.size()) {
  QT_CHECK(options.depth >= 1 && options.threads >= 1, "depth {}, {} threads", options.depth,
           options.threads);
  for (Batch& batch : buffers_) {
    batch.resize(options.sequences, options.source_length, options.target_length);
    // Room for what only some batches have, so that nothing moves later.
    batch.lengths.reserve(static_cast<std::size_t>(options.sequences));
    for (auto* tokens : {&batch.source_segments, &batch.source_positions}) {
      tokens->reserve(batch.source.size());
    }
    for (auto* tokens : {&batch.target_segments, &batch.target_positions}) {
      tokens->reserve(batch.target.size());
    }
  }
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  freed_.notify_all();
}

void Prefetcher::work() {
  const auto size = static_cast<std::int64_t>(buffers_.size());
  std::unique_lock lock(mutex_);
  for (;;) {
    // The caller holds batch next_to_give_ - 1, whose buffer must stay.
    freed_.wait(lock, [&] { return stop_ || next_to_make_ < next_to_give_ - 1 + size; });
    if (stop_) return;
    const std::int64_t number = next_to_make_++;
    const auto slot = static_cast<std::size_t>(number % size);
    lock.unlock();
    Status status;
    std::exception_ptr crash;
    try {
      status = source_.fill(first_sample_(number), buffers_[slot]);
    } catch (...) {
      crash = std::current_exception();
    }
    lock.lock();
    crashes_[slot] = crash;
    statuses_[slot] = status;
    ready_[slot] = true;
    made_.notify_one();
  }
}

Result<const Batch*> Prefetcher::next() {
  const auto size = static_cast<std::int64_t>(buffers_.size());
  std::unique_lock lock(mutex_);
  const auto slot = static_cast<std::size_t>(next_to_give_ % size);
  if (next_to_give_ > 0) ready_[static_cast<std::size_t>((next_to_give_ - 1) % size)] = false;
  ++next_to_give_;  // gives the last one back
  freed_.notify_all();
  if (!ready_[slot]) {
    const auto began = std::chrono::steady_clock::now();
    made_.wait(lock, [&] { return ready_[slot]; });
    stalled_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  if (crashes_[slot] != nullptr) std::rethrow_exception(crashes_[slot]);
  if (!statuses_[slot].ok()) return statuses_[slot].error();
  return &buffers_[slot];
}

}  // namespace quintet
