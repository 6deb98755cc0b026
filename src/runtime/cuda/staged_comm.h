// The communication of a program whose tensors are on a GPU, carried by MPI through pinned host
// memory: for ranks that share a GPU, where no device library can talk, and wherever there is no
// better way.
//
// One queue for each stream beside the compute stream. An op at the head of its queue copies its
// input to the host, is sent or received there, and copies its result back; the copies are on its
// CUDA stream, so that a result is ordered before whoever waits for the op's event. The host moves
// all this on in progress(), and stands still only in wait().
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "runtime/cuda/device_comm.h"

namespace quintet::cuda {

class StagedComm final : public DeviceComm {
 public:
  // Called by all ranks together.
  explicit StagedComm(CommSetup setup);
  ~StagedComm() override;
  StagedComm(const StagedComm&) = delete;
  StagedComm& operator=(const StagedComm&) = delete;

  Communicator* host_group(const Op& op) const override;
  bool is_capturable() const override { return false; }

  void begin_step() override;
  // Puts op `id` in its stream's queue.
  void issue(OpId id) override;
  void progress() override;
  // Waits until the result of op `id` is on its way to the device and its event recorded; returns
  // at once for computation.
  void wait(OpId id) override;
  void wait_all() override;
  std::int64_t bytes_sent(OpId id) const override;

 private:
  enum class State { kQueued, kDownloading, kTransferring, kDone };
  struct CommOp {
    std::unique_ptr<Transfer> transfer;
    std::byte *device_in = nullptr, *device_out = nullptr;
    std::int64_t in_bytes = 0, out_bytes = 0;
    State state = State::kDone;
  };
  // The ops of a stream share its buffers: they come one after the other.
  struct Queue {
    std::vector<OpId> ops;
    std::size_t enqueued = 0, done = 0;
    std::byte *in = nullptr, *out = nullptr;
    std::vector<std::byte> scratch;
    cudaEvent_t downloaded = nullptr;
  };
  using Key = std::pair<std::vector<std::int32_t>, Stream>;

  void make_communicators(World& world);
  void prepare(OpId id, std::byte* arena);
  bool advance(Queue& queue, OpId id);

  const Program& program_;
  const std::array<cudaStream_t, kStreamCount> streams_;
  const std::vector<cudaEvent_t> events_;
  std::map<Key, std::unique_ptr<Communicator>> groups_;
  std::unique_ptr<Communicator> everyone_;  // for messages between two ranks
  std::vector<CommOp> ops_;
  std::array<Queue, kStreamCount> queues_;
};

}  // namespace quintet::cuda
