// Saves checkpoints beside training. All ranks take part:
//
//  1. Rank 0 makes a folder `partial-N` with all files in it, at their final sizes.
//  2. Every rank copies its share of weights and optimizer state into host memory, exchanging what
//     lies on other ranks (checkpoint_shares.h). From here on training goes on.
//  3. Threads write the shares into the files and flush them (checkpoint_blocks.h).
//  4. When all ranks are done, rank 0 writes the small files and, last, the manifest; flushes the
//     folder; renames it to `step-N`; flushes the folder above; and only then removes older
//     checkpoints that are not kept.
//
// Whatever ends a run at whatever moment, the newest `step-...` folder is whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file_store.h"
#include "base/result.h"
#include "parallel/communicator.h"
#include "train/checkpoint.h"
#include "train/checkpoint_blocks.h"
#include "train/checkpoint_retention.h"
#include "train/model_state.h"

namespace quintet {

struct SaveOptions {
  Path run_folder;
  Retention retention;
  // From a copy in host memory, while training goes on; else through a few blocks of it, while
  // training waits.
  bool background = true;
  int threads = 0;  // that write, on each rank; 0: as many as make sense
  FileStore* files = &local_files();
  std::int64_t file_bytes = kCheckpointFileBytes;
};

// Host memory that saving takes on a rank, at most.
std::int64_t saving_bytes(const CheckpointLayout& layout, std::int64_t ranks, bool background);

// Except where noted, methods are called by all ranks together and return the same on all of them.
class CheckpointWriter {
 public:
  struct TextFile {
    std::string name, contents;
  };
  // `descriptions` go into every checkpoint, as they are. Removes what runs that died left in the
  // folder. State, executor and world must outlive it.
  static Result<std::unique_ptr<CheckpointWriter>> create(const ModelState& state,
                                                          Executor& executor, World& world,
                                                          SaveOptions options,
                                                          std::vector<TextFile> descriptions);
  // What was started and not finished is dropped. By each rank alone.
  ~CheckpointWriter();

  // Saves the state as it is now. Returns when training may go on; whether it worked, poll() and
  // finish() say. Waits for the checkpoint before if that is still being written, and fails if that
  // one did, having begun this one.
  Status save(const RunPosition& position);
  // To be called after every step: moves on what is under way. Fails when it failed.
  Status poll();
  // Waits until what was started is durable.
  Status finish();

  bool busy() const { return phase_ != Phase::kIdle; }
  // How long training has stood still for the last save; and what is taken on this rank.
  double still_seconds() const { return still_seconds_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  enum class Phase { kIdle, kWriting, kCommitting };
  struct Exchange;
  CheckpointWriter(const ModelState& state, Executor& executor, World& world, SaveOptions options,
                   std::vector<TextFile> descriptions);

  Status prepare();
  void snapshot();
  std::vector<float> part_values(const BlockShare& share, const Contribution& part) const;
  void copy_own(const BlockShare& share, const Contribution& part, std::span<float> block) const;
  // Moves on if it can, or waits until it can.
  Status advance(bool wait);
  Status begin_commit();
  Status commit(const std::vector<std::string>& checksums);
  Status give_up(const Status& failure);

  const ModelState& state_;
  World& world_;
  const SaveOptions options_;
  const std::vector<TextFile> descriptions_;
  const CheckpointLayout layout_;
  std::vector<BlockShare> shares_;
  std::vector<std::vector<HeldPiece>> others_;  // of the ranks that this one receives from
  std::unique_ptr<Communicator> everyone_;      // null where this rank is alone
  std::shared_ptr<std::byte> memory_;
  std::int64_t bytes_ = 0;

  Phase phase_ = Phase::kIdle;
  RunPosition position_;
  Path partial_;
  std::unique_ptr<BlockWriters> writers_;
  std::thread committer_;  // on rank 0
  std::atomic<bool> committed_{false};
  Status commit_status_;
  double still_seconds_ = 0;
};

}  // namespace quintet
