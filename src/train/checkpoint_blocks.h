// Threads that write the blocks of a checkpoint beside training: each block is looked through for
// values that are no numbers, gets its checksum, and goes to its place in its file; at the end the
// files are flushed to the disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_store.h"
#include "train/checkpoint_layout.h"
#include "train/checkpoint_shares.h"

namespace quintet {

class BlockWriters {
 public:
  // Blocks are filled in `memory`. With room for all of them nothing ever waits for the disk; with
  // less, acquire() waits until one of the blocks before is written.
  BlockWriters(FileStore& files, const CheckpointLayout& layout, const Path& folder,
               std::span<float> memory, bool room_for_all, int threads);
  // Waits for the threads; what is not yet written is dropped.
  ~BlockWriters();
  BlockWriters(const BlockWriters&) = delete;
  BlockWriters& operator=(const BlockWriters&) = delete;

  // Memory for a block, then the block, filled. The share must stay.
  std::span<float> acquire(std::int64_t count);
  void put(const BlockShare& share, std::span<const float> values);
  // What stands before the tensors of a file.
  void put_header(std::int32_t file);
  // Nothing more will come.
  void close();

  // Whether everything is on the disk, or failed.
  bool done() const;
  // Waits until it is. Fails with the first thing that went wrong.
  Status wait();
  // (block, checksum) of what was written; after wait().
  const std::vector<std::pair<std::int64_t, std::uint64_t>>& checksums() const { return sums_; }

 private:
  struct Filled {
    std::int32_t file = 0;
    const BlockShare* share = nullptr;  // null: the header of the file
    std::span<const float> values;
  };
  struct OpenFile {
    std::unique_ptr<PlacedFile> file;
    int writing = 0;  // threads at it
    bool used = false, flushed = false;
  };
  void run();
  Status write(const Filled& block);
  Status write_block(const BlockShare& share, std::span<const float> values);
  Result<PlacedFile*> open(std::int32_t file);
  void fail(const Status& status);

  FileStore& store_;
  const CheckpointLayout& layout_;
  const Path folder_;
  const std::span<float> memory_;
  const bool room_for_all_;

  mutable std::mutex mutex_;
  std::mutex opening_;  // of files; taken before mutex_
  std::condition_variable changed_;
  std::deque<Filled> filled_;
  std::vector<OpenFile> files_;
  std::vector<std::pair<std::int64_t, std::uint64_t>> sums_;
  std::vector<std::size_t> free_;  // beginnings of free blocks, where there is not room for all
  std::size_t next_ = 0;           // where the next block goes, where there is
  bool closed_ = false, dropped_ = false;
  int running_ = 0;
  Status status_;
  std::vector<std::thread> threads_;
};

}  // namespace quintet
