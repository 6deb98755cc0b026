#include "program/op_decl.h"

#include "base/check.h"

namespace quintet {

const OpDecl& declaration(OpKind kind) {
  static const std::array<const OpDecl*, kOpKindCount> kDecls = {
      &kEmbeddingDecl,
      &kEmbeddingBackwardDecl,
      &kRmsNormDecl,
      &kRmsNormBackwardDecl,
      &kQuantizeDecl,
      &kQuantizeWeightsDecl,
      &kMatmulDecl,
      &kAttentionDecl,
      &kAttentionBackwardDecl,
      &kActivationDecl,
      &kActivationBackwardDecl,
      &kDropoutDecl,
      &kAddDecl,
      &kCountLabelsDecl,
      &kLinearCrossEntropyDecl,
      &kSquaredNormDecl,
      &kUpdateScaleDecl,
      &kAdamWDecl,
      &kAdafactorSumsDecl,
      &kAdafactorMomentsDecl,
      &kAdafactorRmsDecl,
      &kAdafactorApplyDecl,
      &kZeroDecl,
      &kSumDecl,
      &kCachedAttentionDecl,
      &kTopLogitsDecl,
      &kCopyDecl,
      &kAllReduceDecl,
      &kAllGatherDecl,
      &kReduceScatterDecl,
      &kSendDecl,
      &kRecvDecl,
  };
  const OpDecl& decl = *kDecls.at(static_cast<std::size_t>(kind));
  QT_CHECK(decl.kind == kind, "the declaration table is out of order at {}", decl.name);
  return decl;
}

double flops_of(const Program& program, const Op& op) {
  const OpDecl& decl = declaration(op.kind);
  return decl.flops == nullptr ? 0 : decl.flops({program, op});
}

double bytes_of(const Program& program, const Op& op) {
  double bytes = 0;
  for (const TensorId id : op.inputs) {
    if (id != kNone) bytes += static_cast<double>(program.tensor(id).bytes());
  }
  for (const TensorId id : op.outputs) {
    if (id != kNone) bytes += static_cast<double>(program.tensor(id).bytes());
  }
  return bytes;
}

std::int32_t group_of(const Op& op) {
  const OpDecl& decl = declaration(op.kind);
  return decl.group == nullptr ? -1 : decl.group(op);
}

}  // namespace quintet
