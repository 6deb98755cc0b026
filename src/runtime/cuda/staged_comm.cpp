#include "runtime/cuda/staged_comm.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <sched.h>

#include "base/check.h"
#include "base/index.h"
#include "program/op_decl.h"
#include "runtime/cuda/check.h"

namespace quintet::cuda {
StagedComm::StagedComm(CommSetup setup)
    : program_(setup.program),
      streams_(setup.streams),
      events_(std::move(setup.events)),
      ops_(program_.ops.size()) {
  std::byte* const arena = setup.arena;
  const Program& program = program_;
  make_communicators(setup.world);
  // 1. What the largest op of each stream needs.
  std::array<std::int64_t, kStreamCount> in{}, out{}, scratch{};
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (!is_communication(op.kind)) continue;
    const OpView v{program, op};
    const auto s = static_cast<std::size_t>(op.stream);
    CommOp& comm = ops_[i];
    if (v.has_in(0)) comm.in_bytes = v.in(0).bytes();
    if (v.has_out(0)) comm.out_bytes = v.out(0).bytes();
    in[s] = std::max(in[s], comm.in_bytes);
    out[s] = std::max(out[s], comm.out_bytes);
    if (const auto* attrs = std::get_if<CollectiveAttrs>(&op.attrs)) {
      scratch[s] =
          std::max(scratch[s], attrs->group_size * (std::max(comm.in_bytes, comm.out_bytes) + 64));
    }
    queues_[s].ops.push_back(static_cast<OpId>(i));
  }
  for (std::size_t s = 0; s < kStreamCount; ++s) {
    Queue& queue = queues_[s];
    if (queue.ops.empty()) continue;
    if (in[s] > 0) QT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&queue.in), index(in[s])));
    if (out[s] > 0) QT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&queue.out), index(out[s])));
    queue.scratch.resize(index(scratch[s]));
    QT_CUDA(cudaEventCreateWithFlags(&queue.downloaded, cudaEventDisableTiming));
  }
  // 2. The transfers, on those buffers.
  for (const Queue& queue : queues_) {
    for (const OpId id : queue.ops) prepare(id, arena);
  }
}

StagedComm::~StagedComm() {
  for (const Queue& queue : queues_) {
    cudaFreeHost(queue.in);
    cudaFreeHost(queue.out);
    if (queue.downloaded != nullptr) cudaEventDestroy(queue.downloaded);
  }
}

void StagedComm::make_communicators(World& world) {
  std::set<Key> keys;  // sorted, so that members of several groups make them in one order
  for (const Op& op : program_.ops) {
    if (const std::int32_t group = group_of(op); group >= 0)
      keys.insert({program_.groups[index(group)].ranks, op.stream});
  }
  if (program_.place.pp_size > 1) {
    std::vector<std::int32_t> all(index(world.size()));
    std::iota(all.begin(), all.end(), 0);
    everyone_ = world.group(all, 1000);
  }
  for (const Key& key : keys)
    groups_[key] = world.group(key.first, static_cast<std::int32_t>(key.second));
}

Communicator* StagedComm::host_group(const Op& op) const {
  const std::int32_t group = group_of(op);
  if (group < 0 || op.stream != Stream::kCompute) return nullptr;
  return groups_.at({program_.groups[index(group)].ranks, op.stream}).get();
}

void StagedComm::prepare(OpId id, std::byte* arena) {
  const Op& op = program_.ops[index(id)];
  const OpView v{program_, op};
  CommOp& comm = ops_[index(id)];
  Queue& queue = queues_[static_cast<std::size_t>(op.stream)];
  if (v.has_in(0)) comm.device_in = arena + program_.address_of(op.inputs[0]);
  if (v.has_out(0)) comm.device_out = arena + program_.address_of(op.outputs[0]);
  if (const auto* message = std::get_if<TransferAttrs>(&op.attrs)) {
    QT_CHECK(everyone_ != nullptr, "messages in a program without a pipeline");
    comm.transfer = op.kind == OpKind::kSend
                        ? everyone_->send(queue.in, comm.in_bytes, message->peer, message->tag)
                        : everyone_->recv(queue.out, comm.out_bytes, message->peer, message->tag);
    return;
  }
  const auto& attrs = v.attrs<CollectiveAttrs>();
  Communicator& group = *groups_.at({program_.groups[index(attrs.group)].ranks, op.stream});
  const Tensor& in = v.in(0);
  void* scratch = queue.scratch.data();
  if (op.kind == OpKind::kAllReduce) {
    comm.transfer =
        group.all_reduce(queue.in, queue.out, in.shape.numel(), in.dtype, attrs.reduction, scratch);
  } else if (op.kind == OpKind::kAllGather) {
    comm.transfer = group.all_gather(queue.in, queue.out, in.bytes());
  } else {
    comm.transfer =
        group.reduce_scatter(queue.in, queue.out, v.out(0).shape.numel(), in.dtype, scratch);
  }
}

void StagedComm::begin_step() {
  for (Queue& queue : queues_) queue.enqueued = queue.done = 0;
}

void StagedComm::issue(OpId id) {
  Queue& queue = queues_[static_cast<std::size_t>(program_.ops[index(id)].stream)];
  QT_CHECK(queue.ops[queue.enqueued] == id, "op {} is not the next of its stream", id);
  ops_[index(id)].state = State::kQueued;
  ++queue.enqueued;
  progress();
}

// Takes an op as far as it goes now; true when it is done.
bool StagedComm::advance(Queue& queue, OpId id) {
  const Op& op = program_.ops[index(id)];
  const cudaStream_t stream = streams_[static_cast<std::size_t>(op.stream)];
  CommOp& comm = ops_[index(id)];
  if (comm.state == State::kQueued) {
    for (const OpId wait : op.waits)
      if (ops_[index(wait)].state != State::kDone) return false;
    for (const OpId wait : op.waits) QT_CUDA(cudaStreamWaitEvent(stream, events_[index(wait)], 0));
    if (comm.in_bytes > 0) {
      QT_CUDA(cudaMemcpyAsync(queue.in, comm.device_in, index(comm.in_bytes),
                              cudaMemcpyDeviceToHost, stream));
    }
    // Recorded for a receive, too: it follows the last copy out of the buffer that is received
    // into.
    QT_CUDA(cudaEventRecord(queue.downloaded, stream));
    comm.state = State::kDownloading;
  }
  if (comm.state == State::kDownloading) {
    const cudaError_t ready = cudaEventQuery(queue.downloaded);
    if (ready == cudaErrorNotReady) return false;
    QT_CUDA(ready);
    comm.transfer->start();
    comm.state = State::kTransferring;
  }
  if (comm.state == State::kTransferring) {
    if (!comm.transfer->test()) return false;
    if (comm.out_bytes > 0) {
      QT_CUDA(cudaMemcpyAsync(comm.device_out, queue.out, index(comm.out_bytes),
                              cudaMemcpyHostToDevice, stream));
    }
    if (events_[index(id)] != nullptr) QT_CUDA(cudaEventRecord(events_[index(id)], stream));
    comm.state = State::kDone;
  }
  return true;
}

void StagedComm::progress() {
  for (Queue& queue : queues_) {
    while (queue.done < queue.enqueued && advance(queue, queue.ops[queue.done])) ++queue.done;
  }
}

void StagedComm::wait(OpId id) {
  while (ops_[index(id)].state != State::kDone) {
    progress();
    // Ranks may outnumber cores: whoever we wait for must get a turn.
    if (ops_[index(id)].state != State::kDone) ::sched_yield();
  }
}

void StagedComm::wait_all() {
  for (const Queue& queue : queues_) {
    while (queue.done < queue.enqueued) {
      progress();
      if (queue.done < queue.enqueued) ::sched_yield();
    }
  }
}

std::int64_t StagedComm::bytes_sent(OpId id) const {
  const auto& transfer = ops_[index(id)].transfer;
  return transfer == nullptr ? 0 : transfer->bytes_sent;
}

}  // namespace quintet::cuda
