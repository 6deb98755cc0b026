// The CPU runtime, described: OpenMP kernels with scratch for each thread, communication over MPI.
#include "runtime/backend.h"

#include "base/index.h"
#include "parallel/mpi_algorithms.h"
#include "runtime/cpu/scratch.h"

namespace quintet {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const Target& target) : target_(target) {}
  const Target& target() const override { return target_; }
  Talk talk(const OpView& op) const override { return mpi_talk(op); }
  std::int64_t bytes_beside_arena(const Program&) const override { return 0; }
  bool times_every_run() const override { return true; }
  bool copies_beside_computation() const override { return false; }
  bool issues_in_order() const override { return true; }

  std::int64_t scratch_bytes(const OpView& v) const override {
    switch (v.op.kind) {
      case OpKind::kMatmul:
        return matmul_bytes(v);
      case OpKind::kAttention:
        return attention_bytes(v);
      case OpKind::kAttentionBackward:
        return attention_backward_bytes(v);
      case OpKind::kLinearCrossEntropy:
        return loss_bytes(v);
      case OpKind::kEmbeddingBackward:  // the tokens, sorted by id
        return 8 * v.in(embedding_backward::kIds).shape.numel();
      case OpKind::kRmsNormBackward: {
        const Shape& x = v.in(rms_norm_backward::kX).shape;
        return rms_norm_backward::row_blocks(x.rows()) * x.cols() * 4;
      }
      case OpKind::kRmsNorm:
      case OpKind::kActivation:
      case OpKind::kActivationBackward:  // results whose codes are left
        return quantize::elements_rounded(v) * size_of(v.in(0).dtype);
      default:
        return mpi_scratch_bytes(v);
    }
  }

 private:
  static std::int64_t matmul_bytes(const OpView& v) {
    // sgemm reads and writes float32 in place; smaller operands are widened a tile at a time.
    const bool widen = v.in(matmul::kA).dtype != DType::kF32 ||
                       v.in(matmul::kB).dtype != DType::kF32 ||
                       v.out(matmul::kC).dtype != DType::kF32;
    if (!widen) return 0;
    const matmul::Sizes s = matmul::sizes_of(v);
    return matmul::WidenTile::of(s.m, s.n, s.k).bytes();
  }

  std::int64_t attention_bytes(const OpView& v) const {
    const Tensor& q = v.in(attention::kQ);
    const std::int64_t keys = v.has_in(attention::kKv) ? v.in(attention::kKv).shape[1] : q.shape[1];
    const std::int64_t dim = v.attrs<AttentionAttrs>().head_dim;
    return 4 * attention::bucket_floats(q.shape[1], keys) +
           target_.threads * attention::Scratch::forward(q.shape[1], keys, dim).bytes();
  }

  std::int64_t attention_backward_bytes(const OpView& v) const {
    const auto& a = v.attrs<AttentionAttrs>();
    const Tensor& q = v.in(attention_backward::kQ);
    const std::int64_t keys =
        v.has_in(attention_backward::kKv) ? v.in(attention_backward::kKv).shape[1] : q.shape[1];
    return 4 * attention::bucket_floats(q.shape[1], keys) +
           aligned(q.shape[0] * a.heads * a.buckets * 4) +
           target_.threads * attention::Scratch::backward(q.shape[1], keys, a.head_dim).bytes();
  }

  static std::int64_t loss_bytes(const OpView& v) {
    namespace lce = linear_cross_entropy;
    const Shape &x = v.in(lce::kX).shape, &weight = v.in(lce::kWeight).shape;
    const std::int64_t chunk = std::min(v.attrs<LinearCrossEntropyAttrs>().chunk, x.rows());
    const std::int32_t group = group_of(v.op);
    const std::size_t members = group < 0 ? 1 : v.program.groups.at(index(group)).ranks.size();
    return lce::Scratch::of(chunk, x.cols(), weight.rows(), static_cast<std::int64_t>(members))
        .bytes();
  }

  const Target target_;
};

}  // namespace

std::unique_ptr<const Backend> make_cpu_backend(const Target& target) {
  return std::make_unique<CpuBackend>(target);
}

}  // namespace quintet
