// Communication by NCCL, on the streams the program gives it. Every group has a communicator on
// each stream it is used on, every pair of ranks one for each direction of the pipeline: what is on
// different streams never waits for each other inside the library.
#include <map>
#include <set>
#include <tuple>

#include <sched.h>

#include "base/check.h"
#include "base/index.h"
#include "program/op_decl.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_comm.h"
#include "runtime/cuda/nccl_library.h"

namespace quintet::cuda {
namespace {

ncclDataType_t type_of(DType dtype) {
  QT_CHECK(is_float(dtype), "a sum of {}", name_of(dtype));
  return dtype == DType::kF32 ? ncclFloat32 : ncclBfloat16;
}
ncclRedOp_t operation_of(Reduction reduction) {
  return reduction == Reduction::kMax ? ncclMax : ncclSum;
}

class NcclGroup final : public DeviceGroup {
 public:
  explicit NcclGroup(ncclComm_t comm) : comm_(comm) {}
  void all_reduce(float* data, std::int64_t count, Reduction reduction,
                  cudaStream_t stream) override {
    QT_NCCL(nccl_library()->all_reduce(data, data, index(count), ncclFloat32,
                                       operation_of(reduction), comm_, stream));
  }

 private:
  ncclComm_t comm_;
};

class NcclComm final : public DeviceComm {
 public:
  explicit NcclComm(CommSetup setup) : s_(std::move(setup)) {
    std::set<Key> keys;  // sorted, so that members of several groups make them in one order
    for (const Op& op : s_.program.ops) {
      if (group_of(op) >= 0 || is_message(op)) keys.insert(key_of(op));
    }
    for (const Key& key : keys) {
      comms_[key] = make(key);
      groups_.emplace(key, NcclGroup(comms_[key]));
    }
  }
  ~NcclComm() override {
    if (aborted_) return;
    for (const auto& [key, comm] : comms_) nccl_library()->destroy(comm);
  }

  DeviceGroup* device_group(const Op& op) const override {
    if (group_of(op) < 0 || is_communication(op.kind)) return nullptr;
    return const_cast<NcclGroup*>(&groups_.at(key_of(op)));
  }
  bool is_capturable() const override { return true; }
  void check() override {
    for (const auto& [key, comm] : comms_) {
      ncclResult_t state = ncclSuccess;
      QT_NCCL(nccl_library()->async_error(comm, &state));
      if (state == ncclSuccess || state == ncclInProgress) continue;
      // Else the device would wait for ever, and so would whoever waits for it.
      aborted_ = true;
      for (const auto& [other, group] : comms_) nccl_library()->abort(group);
      nccl_failed(__FILE__, __LINE__, "between ranks", state);
    }
  }

  void issue(OpId id) override {
    const Op& op = s_.program.ops[index(id)];
    const OpView v{s_.program, op};
    const cudaStream_t stream = s_.streams[static_cast<std::size_t>(op.stream)];
    const auto at = [&](TensorId t) { return s_.arena + s_.program.address_of(t); };
    const NcclLibrary& nccl = *nccl_library();
    ncclComm_t comm = comms_.at(key_of(op));
    switch (op.kind) {
      case OpKind::kAllReduce:
        QT_NCCL(nccl.all_reduce(at(op.inputs[0]), at(op.outputs[0]), index(v.in(0).shape.numel()),
                                type_of(v.in(0).dtype),
                                operation_of(v.attrs<CollectiveAttrs>().reduction), comm, stream));
        break;
      case OpKind::kAllGather:
        QT_NCCL(nccl.all_gather(at(op.inputs[0]), at(op.outputs[0]), index(v.in(0).bytes()),
                                ncclInt8, comm, stream));
        break;
      case OpKind::kReduceScatter:
        QT_NCCL(nccl.reduce_scatter(at(op.inputs[0]), at(op.outputs[0]),
                                    index(v.out(0).shape.numel()), type_of(v.in(0).dtype), ncclSum,
                                    comm, stream));
        break;
      case OpKind::kSend:  // the receiver is second in the pair
        QT_NCCL(nccl.send(at(op.inputs[0]), index(v.in(0).bytes()), ncclInt8, 1, comm, stream));
        break;
      case OpKind::kRecv:
        QT_NCCL(nccl.recv(at(op.outputs[0]), index(v.out(0).bytes()), ncclInt8, 0, comm, stream));
        break;
      default:
        QT_CHECK(false, "{} is not communication", name_of(op.kind));
    }
  }

 private:
  using Key = std::pair<std::vector<std::int32_t>, int>;

  static bool is_message(const Op& op) {
    return op.kind == OpKind::kSend || op.kind == OpKind::kRecv;
  }
  // Who talks, and on what: a stream of collectives, or a direction of messages.
  Key key_of(const Op& op) const {
    if (!is_message(op))
      return {s_.program.groups[index(group_of(op))].ranks, static_cast<int>(op.stream)};
    const std::int32_t me = s_.program.place.rank, peer = std::get<TransferAttrs>(op.attrs).peer;
    const bool forward = op.stream == Stream::kSendForward || op.stream == Stream::kRecvForward;
    const std::vector<std::int32_t> pair =
        op.kind == OpKind::kSend ? std::vector{me, peer} : std::vector{peer, me};
    return {pair, kStreamCount + (forward ? 0 : 1)};
  }

  // The first member's id, broadcast over MPI, makes the communicator.
  ncclComm_t make(const Key& key) {
    const auto host = s_.world.group(key.first, 2000 + key.second);
    ncclUniqueId id{};
    if (host->rank() == 0) QT_NCCL(nccl_library()->get_unique_id(&id));
    const auto broadcast = host->broadcast(&id, sizeof id, 0);
    broadcast->start();
    while (!broadcast->test()) ::sched_yield();
    ncclComm_t comm = nullptr;
    QT_NCCL(nccl_library()->init_rank(&comm, host->size(), id, host->rank()));
    return comm;
  }

  const CommSetup s_;
  std::map<Key, ncclComm_t> comms_;
  std::map<Key, NcclGroup> groups_;
  bool aborted_ = false;
};

}  // namespace

std::unique_ptr<DeviceComm> make_nccl_comm(CommSetup setup) {
  return std::make_unique<NcclComm>(std::move(setup));
}

}  // namespace quintet::cuda
