// What an op kind is, declared once: shape rule, gradient, cost, whom it talks to, freedom to
// overwrite. The builder, autodiff, recompute, the memory plan, the verifier, the dry run and the
// simulator all read this; a backend adds one kernel per kind and the scratch memory it wants.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace quintet {

class VjpContext;

// What the shape rule says of one result.
struct TensorSpec {
  std::string_view suffix;  // appended to the op's name to name this result
  Shape shape;
  DType dtype = DType::kF32;
  TensorId named_after = kNone;  // a tensor whose name it has instead of the op's
};

// Whether the recompute pass may drop an op's results and run it again in the backward.
enum class Redo : std::uint8_t {
  kNever,  // has effects beyond its results, or holds the loss
  kCheap,  // moves bytes, no matrix product: `selective` drops it
  kFull    // `full` drops it
};

// Result `output` may take the storage of `input` when nothing reads that input afterwards.
struct InPlace {
  std::int8_t output = -1, input = -1;
};

struct OpDecl {
  OpKind kind{};
  std::string_view name;

  // Shapes and dtypes of all results, from the inputs and attributes. Throws LogicError when the
  // inputs do not fit together: only a bug in the model or a pass can cause that.
  std::vector<TensorSpec> (*infer)(const OpView&) = nullptr;
  // Emits the ops that compute the gradients of the inputs. Null: not differentiable.
  void (*vjp)(VjpContext&) = nullptr;
  // Floating-point operations of the matrix products, as the model's cost counts them. Null: none.
  double (*flops)(const OpView&) = nullptr;
  // The group of ranks it talks to, an index into Program::groups; -1: none this time. Null: never
  // talks to a group.
  std::int32_t (*group)(const Op&) = nullptr;

  Redo redo = Redo::kNever;
  std::array<InPlace, 2> in_place = {};
};

// Each is defined in the file of its kind under program/ops/.
extern const OpDecl kEmbeddingDecl, kEmbeddingBackwardDecl, kRmsNormDecl, kRmsNormBackwardDecl,
    kQuantizeDecl, kQuantizeWeightsDecl, kMatmulDecl, kAttentionDecl, kAttentionBackwardDecl,
    kActivationDecl, kActivationBackwardDecl, kDropoutDecl, kAddDecl, kCountLabelsDecl,
    kLinearCrossEntropyDecl, kSquaredNormDecl, kUpdateScaleDecl, kAdamWDecl, kAdafactorSumsDecl,
    kAdafactorMomentsDecl, kAdafactorRmsDecl, kAdafactorApplyDecl, kZeroDecl, kSumDecl,
    kCachedAttentionDecl, kTopLogitsDecl, kCopyDecl, kAllReduceDecl, kAllGatherDecl,
    kReduceScatterDecl, kSendDecl, kRecvDecl;

const OpDecl& declaration(OpKind kind);
inline std::string_view name_of(OpKind kind) {
  return declaration(kind).name;
}

// Cost of an op, from its declaration. Bytes: every input read once, every output written once.
double flops_of(const Program& program, const Op& op);
double bytes_of(const Program& program, const Op& op);
// The group an op talks to, an index into Program::groups; -1 for messages and plain computation.
std::int32_t group_of(const Op& op);

// Scratch layouts are cut with this.
inline std::int64_t aligned(std::int64_t bytes, std::int64_t to = 64) {
  return (bytes + to - 1) / to * to;
}

}  // namespace quintet
