#include "runtime/cpu/comm_streams.h"

#include <numeric>
#include <set>

#include <sched.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/index.h"
#include "program/op_decl.h"

namespace quintet::cpu {
CommStreams::CommStreams(const Program& program, std::byte* arena, World& world)
    : program_(program), ops_(program.ops.size()), queues_(kStreamCount) {
  make_communicators(world);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (!is_communication(op.kind)) continue;
    ops_[i].transfer = prepare(op, arena);
    queues_[static_cast<std::size_t>(op.stream)].ops.push_back(static_cast<OpId>(i));
  }
}

void CommStreams::make_communicators(World& world) {
  std::set<Key> keys;  // sorted, so that members of several groups make them in one order
  bool messages = false;
  for (const Op& op : program_.ops) {
    if (const std::int32_t group = quintet::group_of(op); group >= 0) {
      keys.insert({program_.groups[index(group)].ranks, op.stream});
    }
    messages = messages || op.kind == OpKind::kSend || op.kind == OpKind::kRecv;
  }
  if (program_.place.pp_size > 1) {
    std::vector<std::int32_t> all(index(world.size()));
    std::iota(all.begin(), all.end(), 0);
    everyone_ = world.group(all, 1000);
  }
  QT_CHECK(!messages || everyone_ != nullptr, "messages in a program without a pipeline");
  for (const Key& key : keys) {
    groups_[key] = world.group(key.first, static_cast<std::int32_t>(key.second));
  }
}

Communicator* CommStreams::group_of(const Op& op) const {
  const std::int32_t group = quintet::group_of(op);
  if (group < 0 || op.stream != Stream::kCompute) return nullptr;
  return groups_.at({program_.groups[index(group)].ranks, op.stream}).get();
}

std::unique_ptr<Transfer> CommStreams::prepare(const Op& op, std::byte* arena) {
  const OpView v{program_, op};
  const auto at = [&](TensorId t) { return arena + program_.address_of(t); };
  void* scratch = op.workspace == kNone ? nullptr : at(op.workspace);
  if (const auto* message = std::get_if<TransferAttrs>(&op.attrs)) {
    if (op.kind == OpKind::kSend) {
      return everyone_->send(at(op.inputs[0]), v.in(0).bytes(), message->peer, message->tag);
    }
    return everyone_->recv(at(op.outputs[0]), v.out(0).bytes(), message->peer, message->tag);
  }
  const auto& attrs = v.attrs<CollectiveAttrs>();
  Communicator& group = *groups_.at({program_.groups[index(attrs.group)].ranks, op.stream});
  const Tensor& in = v.in(0);
  switch (op.kind) {
    case OpKind::kAllReduce:
      return group.all_reduce(at(op.inputs[0]), at(op.outputs[0]), in.shape.numel(), in.dtype,
                              attrs.reduction, scratch);
    case OpKind::kAllGather:
      return group.all_gather(at(op.inputs[0]), at(op.outputs[0]), in.bytes());
    case OpKind::kReduceScatter:
      return group.reduce_scatter(at(op.inputs[0]), at(op.outputs[0]), v.out(0).shape.numel(),
                                  in.dtype, scratch);
    default:
      QT_CHECK(false, "{} is not communication", name_of(op.kind));
  }
}

void CommStreams::begin_step(double start_time, std::span<OpTiming> timings) {
  start_time_ = start_time;
  timings_ = timings;
  waiting_ = false;
  for (Queue& queue : queues_) queue.enqueued = queue.done = 0;
}

void CommStreams::enqueue(OpId id) {
  CommOp& op = ops_[index(id)];
  op.started = op.done = false;
  Queue& queue = queues_[static_cast<std::size_t>(program_.ops[index(id)].stream)];
  QT_CHECK(queue.ops[queue.enqueued] == id, "op {} is not the next of its stream", id);
  ++queue.enqueued;
  progress();
}

bool CommStreams::ready(const Op& op) const {
  for (const OpId wait : op.waits) {
    if (!ops_[index(wait)].done) return false;
  }
  return true;
}

void CommStreams::progress() {
  for (Queue& queue : queues_) {
    while (queue.done < queue.enqueued) {
      const OpId id = queue.ops[queue.done];
      CommOp& op = ops_[index(id)];
      if (!op.started && !ready(program_.ops[index(id)])) break;
      OpTiming& timing = timings_[index(id)];
      const double begin = now();
      if (!op.started) {
        timing = {.start = begin - start_time_};
        op.transfer->start();
        op.started = true;
      }
      op.done = op.transfer->test();
      const double end = now();
      // While somebody waits anyhow, it costs nothing more.
      if (!waiting_) timing.talking += end - begin;
      if (!op.done) break;
      timing.end = end - start_time_;
      ++queue.done;
    }
  }
}

void CommStreams::wait(OpId id) {
  waiting_ = true;
  while (!is_done(id)) {
    progress();
    // Ranks may outnumber cores: whoever we wait for must get a turn.
    if (!is_done(id)) ::sched_yield();
  }
  waiting_ = false;
}

void CommStreams::wait_all() {
  waiting_ = true;
  for (const Queue& queue : queues_) {
    for (std::size_t at = queue.ops.size(); queue.done < queue.enqueued;) {
      if (queue.done != at) activity_->enter_op(queue.ops[at = queue.done], true);
      progress();
      if (queue.done < queue.enqueued) ::sched_yield();
    }
  }
  waiting_ = false;
}

std::int64_t CommStreams::bytes_sent(OpId id) const {
  const auto& transfer = ops_[index(id)].transfer;
  return transfer == nullptr ? 0 : transfer->bytes_sent;
}

}  // namespace quintet::cpu
