// T5 written once: the forward graph of one micro-batch, with its weights and the loss. No
// parallelism but the shapes of this rank's part.
#pragma once

#include <cstdint>

#include "model/t5_config.h"
#include "program/program.h"

namespace quintet {

// The sizes of one micro-batch.
struct BatchShape {
  std::int64_t micro_batch = 1;         // sequences
  std::int64_t source = 0, target = 0;  // tokens
  bool padded = false;  // sequences may be shorter than `source`; their lengths are an input
};

struct ModelOptions {
  DType dtype = DType::kF32;       // of the working weights and the activations
  DType grad_dtype = DType::kF32;  // of the accumulated gradients
  double z_loss = 0;
  std::int64_t loss_chunk = 0;  // tokens whose logits exist at one time; 0: chosen by size
  std::uint64_t seed = 0;       // of the dropout masks
};

// Refuses batches that cannot be.
Status validate(const BatchShape& shape);

// The forward program of one micro-batch, loss included: units, weights with their gradient
// tensors, ops.
Program emit_t5(const T5Config& config, const BatchShape& shape, const ModelOptions& options);

}  // namespace quintet
