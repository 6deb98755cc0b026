// Runs blocks of text through all threads: read, worked on in parallel, and committed one by one in
// an order that depends on the files alone. That order is round-robin over a few lanes of files,
// which can be decompressed side by side. Memory is bounded by a budget for what is in flight.
//
// A block has a number, its ticket; ticket t is the (t / lanes)-th block of lane t % lanes. A
// thread takes the next ticket, waits for its turn to read from the lane, works on the block, and
// leaves the result. Whoever leaves the oldest one commits it and those ready behind it.
//
// Memory is used again from block to block: fresh memory has to be cleared by the system first,
// page by page, which costs more than parsing what is then read into it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "data/corpus/text_blocks.h"

namespace quintet {

// Where all lanes stand once the tickets before `ticket` are committed.
struct PipelinePosition {
  std::uint64_t ticket = 0;
  std::vector<TextPosition> lanes;
};

// Output has clear(), which makes it as new but may keep memory, a bounded amount of it.
template <class Output>
class BlockPipeline {
 public:
  // A block's way through the pipeline. Its text is gone when it is committed.
  struct Item {
    std::uint64_t ticket = 0;
    TextBlock block;
    Output output;
  };
  // Called by several threads at a time, each with its own number from 0.
  using Process = std::function<Status(int thread, Item& item)>;
  // Called by one thread at a time, in the order of the tickets. `position` is where to continue
  // after this item.
  using Commit = std::function<Status(Item& item, const PipelinePosition& position)>;

  // Lanes must stand at `position`.
  BlockPipeline(std::vector<TextBlocks> lanes, PipelinePosition position, int threads)
      : position_(std::move(position)), threads_(threads) {
    next_ticket_ = position_.ticket;
    const std::size_t count = lanes.size();
    for (std::size_t i = 0; i < count; ++i) {
      // The first ticket of this lane that is not yet done.
      const std::uint64_t turn = next_ticket_ + (i + count - next_ticket_ % count) % count;
      lanes_.push_back({std::move(lanes[i]), turn, false});
    }
    slots_.resize(static_cast<std::size_t>(2 * threads) + count);
  }

  // Returns when everything is committed; or when `stop` was set, with everything committed that
  // was begun; or with the first error in the order of the tickets.
  Status run(const Process& process, const Commit& commit, const std::atomic<bool>& stop) {
    std::vector<std::jthread> pool;
    for (int thread = 1; thread < threads_; ++thread) {
      pool.emplace_back([&, thread] { work(thread, process, commit, stop); });
    }
    work(0, process, commit, stop);
    pool.clear();  // joins
    if (crash_ != nullptr) std::rethrow_exception(crash_);
    return failure_;
  }

  // Whether everything there is has been committed.
  bool finished() const { return all_done() && !aborted(); }

 private:
  struct Lane {
    TextBlocks blocks;
    std::uint64_t turn;  // the ticket that may read
    bool done;
  };
  // A worked-on item that waits to be committed.
  struct Slot {
    std::unique_ptr<Item> item;
    Status status;
    TextPosition after;
    std::uint64_t cost = 0;
  };

  // Bytes in flight, and what a byte of text costs at most: itself, once more without its JSON, and
  // a token of four bytes.
  static constexpr std::uint64_t kBudget = 384 << 20, kCostPerByte = 6;
  // The largest buffer for text that a thread keeps between blocks.
  static constexpr std::size_t kKeptText = 1 << 20;

  void work(int thread, const Process& process, const Commit& commit,
            const std::atomic<bool>& stop) {
    try {
      Buffer<char> text;
      while (step(thread, text, process, commit, stop)) {
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (crash_ == nullptr) crash_ = std::current_exception();
      ended_ = true;
      changed_.notify_all();
    }
  }

  // One block; false when there are no more to begin. `text`: memory for the block's.
  bool step(int thread, Buffer<char>& text, const Process& process, const Commit& commit,
            const std::atomic<bool>& stop) {
    Slot slot;
    std::unique_lock lock(mutex_);
    // 1. A ticket, not too far ahead of what is committed.
    changed_.wait(lock, [&] { return ended_ || next_ticket_ - position_.ticket < slots_.size(); });
    if (ended_ || stop) return false;
    std::unique_ptr<Item> item = take_item();
    item->ticket = next_ticket_++;
    Lane& lane = lanes_[item->ticket % lanes_.size()];
    changed_.wait(lock, [&] { return aborted() || lane.turn == item->ticket; });
    if (aborted()) return false;
    // 2. The block. The turn is this thread's alone, so the lane needs no lock.
    lock.unlock();
    item->block.text.swap(text);
    if (!lane.done) slot.status = lane.blocks.next(item->block);
    slot.after = lane.blocks.position();
    lock.lock();
    const bool empty = item->block.text.empty() && item->block.too_long.empty();
    if (slot.status.ok() && empty) {
      lane.done = true;
      if (all_done()) ended_ = true;
    }
    // 3. Room for it. The oldest always has it, so this ends.
    slot.cost = item->block.text.size() * kCostPerByte;
    changed_.wait(lock, [&] {
      return aborted() || in_flight_ + slot.cost <= kBudget || item->ticket == position_.ticket;
    });
    in_flight_ += slot.cost;
    lane.turn += lanes_.size();
    changed_.notify_all();
    lock.unlock();
    // 4. The work.
    if (slot.status.ok() && !empty) slot.status = process(thread, *item);
    // The item may wait long to be committed; the text goes on to the next block.
    text.swap(item->block.text);
    text.clear();
    text.shrink(kKeptText);
    lock.lock();
    Slot& place = slots_[item->ticket % slots_.size()];
    slot.item = std::move(item);
    place = std::move(slot);
    commit_ready(lock, commit);
    return !ended_;
  }

  // A used one if there is one, the last used first: it may still be in the processor's cache.
  std::unique_ptr<Item> take_item() {
    if (spare_.empty()) return std::make_unique<Item>();
    std::unique_ptr<Item> item = std::move(spare_.back());
    spare_.pop_back();
    return item;
  }
  void give_item(std::unique_ptr<Item> item) {
    if (spare_.size() == static_cast<std::size_t>(threads_)) return;
    item->block.clear();
    item->output.clear();
    spare_.push_back(std::move(item));
  }

  bool aborted() const { return crash_ != nullptr || !failure_.ok(); }
  bool all_done() const {
    for (const Lane& lane : lanes_) {
      if (!lane.done) return false;
    }
    return true;
  }

  void commit_ready(std::unique_lock<std::mutex>& lock, const Commit& commit) {
    if (committing_) return;
    committing_ = true;
    while (!aborted()) {
      Slot slot = std::move(slots_[position_.ticket % slots_.size()]);
      slots_[position_.ticket % slots_.size()] = {};
      if (slot.item == nullptr) break;
      PipelinePosition after = position_;
      after.lanes[after.ticket % after.lanes.size()] = slot.after;
      ++after.ticket;
      lock.unlock();
      if (slot.status.ok()) slot.status = commit(*slot.item, after);
      lock.lock();
      if (!slot.status.ok()) {
        failure_ = slot.status;
        ended_ = true;
      }
      in_flight_ -= slot.cost;
      give_item(std::move(slot.item));
      position_ = std::move(after);
      changed_.notify_all();
    }
    committing_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Lane> lanes_;
  PipelinePosition position_;  // of what is committed
  std::uint64_t next_ticket_ = 0, in_flight_ = 0;
  std::vector<Slot> slots_;  // by ticket, modulo their number
  std::vector<std::unique_ptr<Item>> spare_;
  bool committing_ = false;
  bool ended_ = false;  // no more tickets; those that were taken are still committed
  Status failure_;
  std::exception_ptr crash_;
  int threads_;
};

}  // namespace quintet
