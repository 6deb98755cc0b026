// T5 written once: the forward graph of one micro-batch, with its weights and the loss, for one
// rank. The only parallelism in it is tensor parallelism, as shapes and the collectives between
// them; a rank alone has neither.
//
// Under tensor parallelism each rank has some heads, some of the feed-forward's width and some of
// the words. Between these regions, where every token is for itself (norms, residual sums,
// dropout), each rank has some of the tokens: a product's partial results are reduce-scattered over
// the tokens, and gathered again before the next product.
#pragma once

#include <cstdint>

#include "model/stages.h"
#include "model/t5_config.h"
#include "program/program.h"

namespace quintet {

// The sizes of one micro-batch.
struct BatchShape {
  std::int64_t micro_batch = 1;         // sequences
  std::int64_t source = 0, target = 0;  // tokens
  bool padded = false;  // sequences may be shorter than `source`; their lengths are an input
  bool packed = false;  // rows hold several segments that do not see each other: also an input
};

struct ModelOptions {
  DType dtype = DType::kF32;       // of the working weights and the activations
  DType grad_dtype = DType::kF32;  // of the accumulated gradients
  bool fp8 = false;                // whether the layers' products take operands of eight bits
  double z_loss = 0;
  double label_smoothing = 0;   // of training; validation's loss is the plain cross-entropy
  std::int64_t loss_chunk = 0;  // tokens whose logits exist at one time; 0: chosen by size
  // What those logits may take in float32 where the chunk is chosen. A GPU wants larger products
  // than a CPU, and has the room.
  std::int64_t logit_bytes = std::int64_t{64} << 20;
  static constexpr std::int64_t kDeviceLogitBytes = std::int64_t{2} << 30;
  std::uint64_t seed = 0;  // of the dropout masks
  // Without gradients nothing is dropped out either, and the loss of each label is a result.
  bool gradients = true;
};

// Refuses batches that cannot be, and splits over `tp` tensor-parallel ranks that do not come out
// even.
Status validate(const T5Config& config, const BatchShape& shape, std::int64_t tp);

// The forward program of one micro-batch, loss included: units, weights with their gradient
// tensors, ops. `place` is the rank, `tensor_group` the world ranks it splits layers with; `cut`
// says which piece of the pipeline each unit belongs to (all are emitted, the pipeline pass takes
// its own). Without gradients it is the whole of what validation computes.
Program emit_t5(const T5Config& config, const BatchShape& shape, const ModelOptions& options,
                const Place& place, const std::vector<std::int32_t>& tensor_group,
                const StageCut& cut);

}  // namespace quintet
