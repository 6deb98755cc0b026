// The communication of a program on the CPU: one queue for each stream beside the compute stream.
// Ops of a stream run one after the other, each once everything it waits for is done; progress()
// moves them on, and is called between computations, since MPI does nothing while nobody calls it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/communicator.h"
#include "program/program.h"
#include "runtime/executor.h"

namespace quintet::cpu {

class CommStreams {
 public:
  // Prepares every communication op of the program. Called by all ranks together.
  CommStreams(const Program& program, std::byte* arena, World& world);

  // The communicator of an op on the compute stream that talks to a group itself; null for other
  // ops.
  Communicator* group_of(const Op& op) const;

  // Tells for which op it waits when it waits for all.
  void report_to(Activity& activity) { activity_ = &activity; }
  void begin_step(double start_time, std::span<OpTiming> timings);
  // Puts op `id` in its stream's queue.
  void enqueue(OpId id);
  void progress();
  bool is_done(OpId id) const { return ops_[static_cast<std::size_t>(id)].done; }
  // Waits until op `id` is done.
  void wait(OpId id);
  void wait_all();
  // From here to the end of the step nothing is computed: time spent on communication holds nothing
  // up but the end itself.
  void nothing_else_to_do() { waiting_ = true; }
  std::int64_t bytes_sent(OpId id) const;

 private:
  struct CommOp {
    std::unique_ptr<Transfer> transfer;
    bool started = false, done = true;
  };
  // Communicators belong to a group and a stream: on one stream all members start them in one
  // order.
  using Key = std::pair<std::vector<std::int32_t>, Stream>;

  void make_communicators(World& world);
  std::unique_ptr<Transfer> prepare(const Op& op, std::byte* arena);
  bool ready(const Op& op) const;

  const Program& program_;
  std::map<Key, std::unique_ptr<Communicator>> groups_;
  std::unique_ptr<Communicator> everyone_;  // for messages between two ranks
  std::vector<CommOp> ops_;                 // by op; no transfer for computation
  // By stream: its ops in order, how many are enqueued and how many of those are done.
  struct Queue {
    std::vector<OpId> ops;
    std::size_t enqueued = 0, done = 0;
  };
  std::vector<Queue> queues_;
  Activity nobody_, *activity_ = &nobody_;
  double start_time_ = 0;
  bool waiting_ = false;
  std::span<OpTiming> timings_;
};

}  // namespace quintet::cpu
