// An operation of a program: a kind, its attributes, the tensors it reads and writes, the stream it
// is issued on and a tag that says what it is for. What each kind means is declared in
// program/ops/.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "program/ops/activation.h"
#include "program/ops/adafactor.h"
#include "program/ops/adamw.h"
#include "program/ops/attention.h"
#include "program/ops/collectives.h"
#include "program/ops/dropout.h"
#include "program/ops/embedding.h"
#include "program/ops/generation.h"
#include "program/ops/linear_cross_entropy.h"
#include "program/ops/matmul.h"
#include "program/ops/quantize.h"
#include "program/ops/rms_norm.h"
#include "program/ops/update_scale.h"
#include "program/tensor.h"

namespace quintet {

enum class OpKind : std::uint8_t {
  kEmbedding,
  kEmbeddingBackward,
  kRmsNorm,
  kRmsNormBackward,
  kQuantize,
  kQuantizeWeights,
  kMatmul,
  kAttention,
  kAttentionBackward,
  kActivation,
  kActivationBackward,
  kDropout,
  kAdd,
  kCountLabels,
  kLinearCrossEntropy,
  kSquaredNorm,
  kUpdateScale,
  kAdamW,
  kAdafactorSums,
  kAdafactorMoments,
  kAdafactorRms,
  kAdafactorApply,
  kZero,
  kSum,
  kCachedAttention,
  kTopLogits,
  kCopy,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kSend,
  kRecv,
};
inline constexpr int kOpKindCount = 32;

// Whether an op of this kind talks to other ranks and does nothing else.
constexpr bool is_communication(OpKind kind) {
  return kind >= OpKind::kAllReduce && kind <= OpKind::kRecv;
}
// Whether it moves bytes and computes nothing: to other ranks, or to host memory and back.
constexpr bool is_transfer(OpKind kind) {
  return kind >= OpKind::kCopy && kind <= OpKind::kRecv;
}

struct NoAttrs {
  template <class Visit>
  void visit(Visit&&) const {}
};

using Attrs = std::variant<NoAttrs, EmbeddingAttrs, RmsNormAttrs, QuantizeAttrs, MatmulAttrs,
                           AttentionAttrs, ActivationAttrs, DropoutAttrs, LinearCrossEntropyAttrs,
                           UpdateScaleAttrs, AdamWAttrs, AdafactorAttrs, CollectiveAttrs,
                           TransferAttrs, CachedAttentionAttrs, TopLogitsAttrs>;

// Ops on one stream run in the order of the program; across streams only `Op::waits` orders them.
// The pipeline has a stream for each direction of each kind, so that no message waits behind
// another it has nothing to do with.
enum class Stream : std::uint8_t {
  kCompute,
  kDataComm,
  kTensorComm,
  kRecvForward,
  kSendForward,
  kRecvBackward,
  kSendBackward,
  kCopyIn,  // from host memory
  kCopyOut
};
inline constexpr int kStreamCount = 9;

constexpr std::string_view name_of(Stream stream) {
  constexpr std::string_view kNames[kStreamCount] = {"compute",  "dp-comm",  "tp-comm",
                                                     "recv-fwd", "send-fwd", "recv-bwd",
                                                     "send-bwd", "copy-in",  "copy-out"};
  return kNames[static_cast<int>(stream)];
}

enum class Phase : std::uint8_t { kSetup, kForward, kRecompute, kBackward, kUpdate };
inline constexpr int kPhaseCount = 5;

constexpr std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[kPhaseCount] = {"setup", "fwd", "rec", "bwd", "upd"};
  return kNames[static_cast<int>(phase)];
}

// The method of parallelism an op exists for; kCompute would be there on a single device, too.
enum class Method : std::uint8_t { kCompute, kData, kTensor, kPipeline, kOffload };
inline constexpr int kMethodCount = 5;

constexpr std::string_view name_of(Method method) {
  constexpr std::string_view kNames[kMethodCount] = {"compute", "data", "tensor", "pipeline",
                                                     "offload"};
  return kNames[static_cast<int>(method)];
}

struct Tag {
  Phase phase = Phase::kForward;
  Method method = Method::kCompute;
  std::int16_t unit = -1;         // index into Program::units
  std::int32_t micro_batch = -1;  // -1: once a step
};

using OpId = std::int32_t;

struct Op {
  OpKind kind{};
  Attrs attrs;
  std::vector<TensorId> inputs;   // kNone where an optional input is absent
  std::vector<TensorId> outputs;  // kNone where a result is not wanted; a tensor in both is updated
  TensorId workspace = kNone;
  Stream stream = Stream::kCompute;
  Tag tag;
  std::vector<OpId> waits;  // ops on other streams that must have finished before this one starts
};

}  // namespace quintet
