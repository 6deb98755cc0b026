// The communication of a program whose tensors are on GPUs: who carries it.
//
// Two carriers: NCCL, on the program's own streams, where every rank has a GPU of its own; MPI
// through pinned host memory (staged_comm.h) everywhere else, ranks that share a GPU above all.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include "parallel/communicator.h"
#include "program/program.h"

namespace quintet::cuda {

// A small all-reduce of float32 in place on a stream, for a kernel that needs a few numbers of its
// peers.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual void all_reduce(float* data, std::int64_t count, Reduction reduction,
                          cudaStream_t stream) = 0;
};

class DeviceComm {
 public:
  virtual ~DeviceComm() = default;

  // For an op on the compute stream that talks to a group itself, one of these two; null for
  // others.
  virtual Communicator* host_group(const Op&) const { return nullptr; }
  virtual DeviceGroup* device_group(const Op&) const { return nullptr; }
  // Whether a step with this communication can be captured as a graph: the host has no part in it.
  virtual bool is_capturable() const = 0;

  virtual void begin_step() {}
  // Issues communication op `id` on its stream. All ops before it have been issued.
  virtual void issue(OpId id) = 0;
  // Moves on what the host has to do with it; called between ops.
  virtual void progress() {}
  // Returns when the event of op `id` has been recorded.
  virtual void wait(OpId) {}
  virtual void wait_all() {}
  // Throws DeviceError when the device waits for something that will not come: another rank has
  // gone, or the network. To be called now and then while the host waits for the device.
  virtual void check() {}
  // Over all steps so far; where the host has no part in it nobody counts, and this is 0.
  virtual std::int64_t bytes_sent(OpId) const { return 0; }
};

// What a carrier works with. `events` by op: recorded when an op is done, null where nobody waits.
struct CommSetup {
  const Program& program;
  std::byte* arena;
  World& world;
  std::array<cudaStream_t, kStreamCount> streams;
  std::vector<cudaEvent_t> events;
};

// The carrier for a program; null where it has nothing to say to anybody. Called by all ranks
// together.
std::unique_ptr<DeviceComm> make_device_comm(CommSetup setup);

// NCCL over the ranks' own GPUs; its library must be there.
std::unique_ptr<DeviceComm> make_nccl_comm(CommSetup setup);

}  // namespace quintet::cuda
