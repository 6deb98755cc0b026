// Communication between ranks on buffers in host memory. One interface; MPI behind it, or nothing
// where a rank is alone.
//
// All calls of a process come from one thread. Nothing here waits: a transfer is started, and
// test() moves it on until it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "program/ops/collectives.h"

namespace quintet {

// Thrown when a transfer fails underneath us: a peer has gone, or the network. Hardly ever the
// first cause of anything.
class CommunicationFailure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An operation on fixed buffers that can be started again and again.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Not while it is still under way.
  virtual void start() = 0;
  // Whether it is done; to be called until it is.
  virtual bool test() = 0;
  // Bytes this rank has sent through it, over all starts.
  std::int64_t bytes_sent = 0;
};

// A group of ranks. Collectives are started in the same order by all members.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::int32_t size() const = 0;
  virtual std::int32_t rank() const = 0;  // position in the group

  // Sums are taken in the order of the group, in float32 whatever the type, and rounded once: the
  // same bits on every member and in every run. `scratch` holds `size` copies of the input, or of
  // its parts rounded up.
  virtual std::unique_ptr<Transfer> all_reduce(const void* in, void* out, std::int64_t count,
                                               DType dtype, Reduction reduction, void* scratch) = 0;
  // whole = every member's part, in the order of the group; part may be its place in whole.
  virtual std::unique_ptr<Transfer> all_gather(const void* part, void* whole,
                                               std::int64_t bytes_per_member) = 0;
  virtual std::unique_ptr<Transfer> reduce_scatter(const void* whole, void* part,
                                                   std::int64_t count_per_member, DType dtype,
                                                   void* scratch) = 0;
  virtual std::unique_ptr<Transfer> broadcast(void* data, std::int64_t bytes,
                                              std::int32_t root) = 0;
  // A small all-reduce in place, there and then, without preparation: for a kernel that needs a few
  // numbers of its peers. `scratch` holds `size` copies.
  virtual void all_reduce_now(float* data, std::int64_t count, Reduction reduction,
                              void* scratch) = 0;
  // What all_reduce_now has taken since it was last reset.
  struct SentNow {
    std::int64_t bytes = 0;
    double seconds = 0;
  } sent_now;

  virtual std::unique_ptr<Transfer> send(const void* data, std::int64_t bytes, std::int32_t to,
                                         std::int32_t tag) = 0;
  virtual std::unique_ptr<Transfer> recv(void* data, std::int64_t bytes, std::int32_t from,
                                         std::int32_t tag) = 0;
};

// All ranks of a run.
class World {
 public:
  virtual ~World() = default;
  virtual std::int32_t size() const = 0;
  virtual std::int32_t rank() const = 0;

  // The communicator of some ranks, this one among them; every member calls it with the same ranks
  // and key. Groups with different keys do not disturb each other. Members that share several
  // groups make them in the same order.
  virtual std::unique_ptr<Communicator> group(const std::vector<std::int32_t>& ranks,
                                              std::int32_t key) = 0;
  // The smallest of the ranks' numbers.
  virtual std::int64_t minimum(std::int64_t value) = 0;
  // Everybody's text on rank 0, by rank; empty elsewhere.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  // Rank 0's text, everywhere.
  virtual std::string broadcast(const std::string& text) = 0;
  virtual void barrier() = 0;
};

// The world this process was started in: by mpirun, srun or another MPI launcher, or alone. MPI is
// initialised once and finalised with the process. Fails where a launcher started several processes
// that MPI does not bring together: each would take itself for the whole run.
Result<std::unique_ptr<World>> join_world();
// This process's rank as its launcher's environment has it, before MPI is initialised; 0 where it
// is alone.
std::int32_t launcher_rank();
// Threads this process should compute with: what OMP_NUM_THREADS says; else the cores it is bound
// to, or its share of all where it is bound to none.
int share_of_cores();
// A world of the first `size` ranks of another, for those ranks; null for the others. All ranks of
// the other call it.
std::unique_ptr<World> make_subworld(World& world, std::int32_t size);
// One rank, alone.
std::unique_ptr<World> make_single_world();

}  // namespace quintet
