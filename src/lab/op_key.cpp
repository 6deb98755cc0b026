#include "lab/op_key.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {
namespace {

std::string dtypes(std::initializer_list<const Tensor*> tensors) {
  std::string text;
  for (const Tensor* tensor : tensors) {
    if (!text.empty()) text += ':';
    text += tensor == nullptr ? "-" : name_of(tensor->dtype);
  }
  return text;
}
const Tensor* in(const OpView& v, int slot) {
  return v.has_in(slot) ? &v.in(slot) : nullptr;
}
const Tensor* out(const OpView& v, int slot) {
  return v.has_out(slot) ? &v.out(slot) : nullptr;
}
std::string flag(bool on, std::string_view name) {
  return on ? fmt::format(":{}", name) : "";
}

// Of an op that leaves codes instead of its result.
std::string codes_flags(const OpView& v) {
  const int codes = quantize::at_source(v.op.kind)->codes;
  return flag(v.has_out(codes + quantize::kCodes), "codes") +
         flag(v.has_out(codes + quantize::kTransposed), "transposed");
}

OpKey matmul_key(const OpView& v) {
  const auto& attrs = v.attrs<MatmulAttrs>();
  const Shape &a = v.in(matmul::kA).shape, &b = v.in(matmul::kB).shape;
  return {OpKind::kMatmul,
          fmt::format("{}{}:{}{}", attrs.transpose_a ? 't' : 'n', attrs.transpose_b ? 't' : 'n',
                      dtypes({in(v, matmul::kA), out(v, matmul::kC)}),
                      flag(v.has_in(matmul::kAddend), "add")),
          {attrs.transpose_a ? a.cols() : a.rows(), attrs.transpose_b ? b.rows() : b.cols(),
           attrs.transpose_a ? a.rows() : a.cols()}};
}

OpKey attention_key(const OpView& v, int q_slot, int kv_slot, int lengths, int segments) {
  const auto& a = v.attrs<AttentionAttrs>();
  const Shape& q = v.in(q_slot).shape;
  const bool cross = v.has_in(kv_slot);
  return {v.op.kind,
          fmt::format("{}:{}{}{}{}{}{}", cross ? "cross" : "self", dtypes({in(v, q_slot)}),
                      flag(a.causal, "causal"), flag(a.buckets > 0, "bias"),
                      flag(v.has_in(lengths), "lengths"), flag(v.has_in(segments), "segments"),
                      flag(a.dropout_rate > 0, "dropout")),
          {q[0], a.heads, q[1], cross ? v.in(kv_slot).shape[1] : q[1], a.head_dim}};
}

// A kind that goes over its first input once.
OpKey elements_key(const OpView& v, std::string variant, const Tensor& tensor) {
  return {v.op.kind, std::move(variant), {std::max<std::int64_t>(tensor.shape.numel(), 1)}};
}
OpKey rows_key(const OpView& v, std::string variant, const Shape& shape) {
  return {v.op.kind,
          std::move(variant),
          {std::max<std::int64_t>(shape.rows(), 1), std::max<std::int64_t>(shape.cols(), 1)}};
}

}  // namespace

std::string OpKey::str() const {
  return fmt::format("{} {} {}", name_of(kind), variant, fmt::join(sizes, "x"));
}

int size_count(OpKind kind) {
  switch (kind) {
    case OpKind::kAttention:
    case OpKind::kAttentionBackward:
      return 5;
    case OpKind::kMatmul:
    case OpKind::kLinearCrossEntropy:
    case OpKind::kEmbeddingBackward:
      return 3;
    case OpKind::kEmbedding:
    case OpKind::kRmsNorm:
    case OpKind::kRmsNormBackward:
    case OpKind::kQuantize:
    case OpKind::kActivation:
    case OpKind::kActivationBackward:
      return 2;
    default:
      return 1;
  }
}

OpKey key_of(const Program& program, const Op& op) {
  const OpView v{program, op};
  switch (op.kind) {
    case OpKind::kMatmul:
      return matmul_key(v);
    case OpKind::kAttention:
      return attention_key(v, attention::kQ, attention::kKv, attention::kLengths,
                           attention::kQuerySegments);
    case OpKind::kAttentionBackward:
      return attention_key(v, attention_backward::kQ, attention_backward::kKv,
                           attention_backward::kLengths, attention_backward::kQuerySegments);
    case OpKind::kLinearCrossEntropy: {
      namespace lce = linear_cross_entropy;
      const Shape& x = v.in(lce::kX).shape;
      return {op.kind,
              dtypes({in(v, lce::kX), out(v, lce::kDWeight)}) +
                  flag(v.has_in(lce::kDWeightAddend), "add"),
              {x.rows(), x.cols(), v.in(lce::kWeight).shape.rows()}};
    }
    case OpKind::kEmbedding:
      return rows_key(v, dtypes({out(v, 0)}), v.out(0).shape);
    case OpKind::kEmbeddingBackward: {
      const Shape &dy = v.in(embedding_backward::kDy).shape, &table = v.out(0).shape;
      return {op.kind,
              dtypes({in(v, 0), out(v, 0)}) + flag(v.has_in(embedding_backward::kAddend), "add"),
              {dy.rows(), dy.cols(), table.rows()}};
    }
    case OpKind::kRmsNorm:
      return rows_key(v, dtypes({in(v, 0)}) + codes_flags(v), v.in(0).shape);
    case OpKind::kRmsNormBackward:
      return rows_key(v,
                      dtypes({in(v, 0), out(v, rms_norm_backward::kDWeight)}) +
                          flag(v.has_in(rms_norm_backward::kAddend), "add"),
                      v.in(rms_norm_backward::kX).shape);
    case OpKind::kQuantize:
      return rows_key(
          v,
          dtypes({in(v, 0)}) + flag(v.has_out(quantize::kCodes), "codes") +
              flag(v.has_out(quantize::kTransposed), "transposed") +
              flag(v.has_in(quantize::kKnownUnit) || v.has_in(quantize::kLargest), "known"),
          v.in(0).shape);
    case OpKind::kQuantizeWeights: {
      namespace qw = quantize_weights;
      std::int64_t elements = 0;  // how they are cut into matrices hardly matters
      for (int i = 0; i < qw::count(op); ++i) elements += v.in(qw::in(i, qw::kX)).shape.numel();
      return {op.kind,
              dtypes({in(v, qw::kX)}) + flag(v.has_out(quantize::kCodes), "codes") +
                  flag(v.has_out(quantize::kTransposed), "transposed") +
                  flag(v.has_in(qw::kKnownUnit), "known"),
              {elements}};
    }
    case OpKind::kActivation:
    case OpKind::kActivationBackward: {
      const auto& attrs = v.attrs<ActivationAttrs>();
      const int h = op.kind == OpKind::kActivation ? int{activation::kH} : activation_backward::kH;
      return rows_key(v,
                      dtypes({in(v, h)}) + flag(attrs.gated, "gated") +
                          (attrs.function == Nonlinearity::kRelu ? ":relu" : ":gelu") +
                          codes_flags(v),
                      v.in(h).shape);
    }
    case OpKind::kDropout:
      return elements_key(v, dtypes({in(v, 0)}) + flag(v.has_in(dropout::kAddend), "add"), v.in(0));
    case OpKind::kAdamW: {
      const DType moments = v.in(adamw::kM).dtype;
      return elements_key(
          v,
          dtypes({in(v, adamw::kGrad), in(v, adamw::kMaster), out(v, adamw::kWorking)}) +
              flag(moments != DType::kF32, name_of(moments)),
          v.in(adamw::kMaster));
    }
    case OpKind::kAdafactorSums:
      return elements_key(v, dtypes({in(v, adafactor_sums::kGrad)}), v.in(adafactor_sums::kGrad));
    case OpKind::kAdafactorMoments:
      return elements_key(v, "f32", v.in(adafactor_moments::kSums));
    case OpKind::kAdafactorRms:
      return elements_key(v, dtypes({in(v, 0), in(v, adafactor_rms::kWeights)}), v.in(0));
    case OpKind::kAdafactorApply:
      return elements_key(
          v, dtypes({in(v, 0), in(v, adafactor_apply::kMaster), out(v, adafactor_apply::kWorking)}),
          v.in(0));
    case OpKind::kZero:
      return elements_key(v, dtypes({out(v, 0)}), v.out(0));
    case OpKind::kCopy: {
      const bool from_host = v.in(0).storage == Storage::kHost;
      const bool to_host = v.out(0).storage == Storage::kHost;
      return {op.kind,
              from_host ? "in"
              : to_host ? "out"
                        : "local",
              {std::max<std::int64_t>(v.in(0).bytes(), 1)}};
    }
    default:
      QT_CHECK(!is_communication(op.kind), "a key for {}", name_of(op.kind));
      return elements_key(v, dtypes({in(v, 0)}), v.in(0));
  }
}

OpClass class_of(OpKind kind) {
  switch (kind) {
    case OpKind::kMatmul:
      return OpClass::kProduct;
    case OpKind::kAttention:
    case OpKind::kAttentionBackward:
      return OpClass::kAttention;
    case OpKind::kLinearCrossEntropy:
      return OpClass::kLoss;
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingBackward:
      return OpClass::kLookup;
    case OpKind::kSquaredNorm:
    case OpKind::kAdamW:
    case OpKind::kAdafactorSums:
    case OpKind::kAdafactorMoments:
    case OpKind::kAdafactorRms:
    case OpKind::kAdafactorApply:
      return OpClass::kUpdate;
    case OpKind::kCopy:
      return OpClass::kCopy;
    default:
      return OpClass::kMemory;
  }
}

double moved_bytes(const Program& program, const Op& op) {
  const OpView v{program, op};
  if (op.kind == OpKind::kEmbedding)
    return bytes_of(program, op) - static_cast<double>(v.in(embedding::kTable).bytes()) +
           static_cast<double>(v.out(0).bytes());
  if (op.kind == OpKind::kEmbeddingBackward && v.has_in(embedding_backward::kAddend))
    return 3 * static_cast<double>(v.in(embedding_backward::kDy).bytes());
  return bytes_of(program, op);
}

}  // namespace quintet
