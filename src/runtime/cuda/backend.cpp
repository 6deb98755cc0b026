// The CUDA runtime, described: kernels and libraries with their scratch, communication by NCCL, or
// by MPI through the host where ranks share a GPU. Compiled with and without CUDA.
#include "runtime/backend.h"

#include <set>
#include <tuple>

#include "base/index.h"
#include "parallel/mpi_algorithms.h"
#include "program/op_decl.h"
#include "runtime/cuda/scratch.h"

namespace quintet {
namespace {

// What the driver's context, the code of kernels and libraries and captured graphs take; as
// measured, and rounded up.
constexpr std::int64_t kContextBytes = std::int64_t{544} << 20;

// What NCCL takes for one communicator, an estimate: its buffers are per channel and connection,
// and their number is its own choice. On four A100 under NVLink 544 MiB were reported for a group
// of two and 688 MiB for more (NCCL's issue 964); messages between two have buffers of 2 MiB for
// each of up to 32 channels (issue 1685). Smaller where links are slower.
constexpr std::int64_t kPairGroupBytes = std::int64_t{544} << 20;
constexpr std::int64_t kGroupBytes = std::int64_t{688} << 20;
constexpr std::int64_t kMessageBytes = std::int64_t{64} << 20;

// As many communicators as nccl_comm.cpp makes: one for each group on each stream, one for each
// neighbour and direction of the pipeline.
std::int64_t nccl_bytes(const Program& program) {
  std::set<std::pair<std::vector<std::int32_t>, Stream>> groups;
  std::set<std::tuple<std::int32_t, OpKind, bool>> messages;
  for (const Op& op : program.ops) {
    if (const auto* message = std::get_if<TransferAttrs>(&op.attrs)) {
      const bool forward = op.stream == Stream::kSendForward || op.stream == Stream::kRecvForward;
      messages.insert({message->peer, op.kind, forward});
    } else if (const std::int32_t group = group_of(op); group >= 0) {
      groups.insert({program.groups[index(group)].ranks, op.stream});
    }
  }
  std::int64_t bytes = static_cast<std::int64_t>(messages.size()) * kMessageBytes;
  for (const auto& [ranks, stream] : groups)
    bytes += ranks.size() > 2 ? kGroupBytes : kPairGroupBytes;
  return bytes;
}

Talk nccl_talk(const OpView& v) {
  Talk talk = mpi_talk(v);
  const std::int64_t n = talk.members;
  switch (talk.algorithm) {
    case Algorithm::kOneRound:
    case Algorithm::kExchangeGather:
      talk.algorithm = Algorithm::kRing;
      talk.bytes_sent = 2 * (n - 1) * ((talk.bytes + n - 1) / n);
      break;
    case Algorithm::kGather:
    case Algorithm::kExchange:
      talk.algorithm = Algorithm::kRing;
      break;
    default:
      break;
  }
  return talk;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const Target& target) : target_(target) {}
  const Target& target() const override { return target_; }
  Talk talk(const OpView& op) const override {
    return target_.staged ? mpi_talk(op) : nccl_talk(op);
  }
  std::int64_t bytes_beside_arena(const Program& program) const override {
    return kContextBytes + (target_.staged ? 0 : nccl_bytes(program));
  }
  bool times_every_run() const override { return false; }
  bool copies_beside_computation() const override { return true; }
  bool issues_in_order() const override { return false; }

  std::int64_t scratch_bytes(const OpView& v) const override {
    switch (v.op.kind) {
      case OpKind::kQuantize:
        return 4 * quantize::kSlots;
      case OpKind::kRmsNorm:
      case OpKind::kActivation:
      case OpKind::kActivationBackward:
        return quantize::elements_rounded(v) > 0 ? 4 * quantize::kSlots : 0;
      case OpKind::kQuantizeWeights:
        return v.has_in(quantize_weights::kKnownUnit)
                   ? 0
                   : quantize_weights::device_bytes(quantize_weights::count(v.op));
      case OpKind::kMatmul:
        return matmul::kDeviceWorkspace;
      case OpKind::kAttentionBackward:
        return attention_backward_bytes(v);
      case OpKind::kLinearCrossEntropy:
        return loss_bytes(v);
      case OpKind::kEmbeddingBackward:
        return embedding_backward::DeviceScratch::of(
                   v.in(embedding_backward::kIds).shape.numel(),
                   v.out(embedding_backward::kDTable).shape.cols())
            .bytes;
      case OpKind::kRmsNormBackward: {
        const Shape& x = v.in(rms_norm_backward::kX).shape;
        return rms_norm_backward::device_blocks(x.rows(), x.cols()) * x.cols() * 4;
      }
      case OpKind::kSquaredNorm:
        return 8 * squared_norm::device_blocks(v.in(squared_norm::kX).shape.numel());
      case OpKind::kAdafactorSums: {
        std::int64_t sums = 0;
        for (const AdafactorSegment& s : v.attrs<AdafactorAttrs>().segments)
          sums += adafactor::DeviceGrid::of(s).sums(s);
        return 4 * sums;
      }
      case OpKind::kAdafactorMoments:
        return 8 * adafactor::kMomentBlocks * std::ssize(v.attrs<AdafactorAttrs>().segments);
      case OpKind::kAdafactorRms: {
        std::int64_t bytes = 0;
        for (const AdafactorSegment& s : v.attrs<AdafactorAttrs>().segments)
          bytes += adafactor::DeviceGrid::of(s).rms_bytes();
        return bytes;
      }
      default:
        return 0;
    }
  }

 private:
  static std::int64_t attention_backward_bytes(const OpView& v) {
    const auto& a = v.attrs<AttentionAttrs>();
    const Tensor& q = v.in(attention_backward::kQ);
    const std::int64_t plain =
        attention::DeviceScratch::backward(q.shape[0], q.shape[1], a.heads, a.buckets).bytes;
    if (q.dtype != DType::kBF16 || a.head_dim != 64) return plain;
    return std::max(
        plain, attention::hopper_backward_bytes(q.shape[0], q.shape[1], a.heads, a.buckets > 0));
  }

  static std::int64_t loss_bytes(const OpView& v) {
    namespace lce = linear_cross_entropy;
    const Shape &x = v.in(lce::kX).shape, &weight = v.in(lce::kWeight).shape;
    const std::int64_t chunk = std::min(v.attrs<LinearCrossEntropyAttrs>().chunk, x.rows());
    return lce::DeviceScratch::of(chunk, weight.rows(), v.in(lce::kX).dtype).bytes;
  }

  const Target target_;
};

}  // namespace

std::unique_ptr<const Backend> make_cuda_backend(const Target& target) {
  return std::make_unique<CudaBackend>(target);
}

}  // namespace quintet
