// The output layer and the loss as one op: logits = scale * X W^T, cross-entropy against the
// labels, and the gradients of both operands in the same pass. Tokens are taken in chunks, so the
// logits of a 250,112 word vocabulary never exist for more than `chunk` tokens.
//
//   loss[0] += sum over counted labels of (logsumexp - logit[label]) / count
//   loss[1] += sum over counted labels of z_loss * logsumexp^2 / count
//
// and dX, dW are the gradients of loss[0] + loss[1]. Labels below zero do not count.
//
// Under tensor parallelism the weight is this rank's run of words and x the same on all ranks of
// the group; they exchange three numbers for each token, and nobody holds whole logits. dX is then
// this rank's contribution to a sum over the group.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"
#include "program/ops/matmul.h"

namespace quintet {

struct LinearCrossEntropyAttrs {
  std::int64_t chunk = 0;  // tokens whose logits exist at one time
  float scale = 1;         // d_model^-0.5 where the head is tied to the embedding
  float z_loss = 0;
  std::int64_t first_word = 0;  // id of the weight's first row
  std::int64_t words = 0;       // rows that are words; what follows is padding
  std::int32_t group = -1;      // -1: this rank has all words
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("chunk", chunk);
    visit("scale", scale);
    visit("z_loss", z_loss);
  }
};

namespace linear_cross_entropy {
enum Inputs { kX, kWeight, kLabels, kCount, kLossAddend, kDWeightAddend };  // addends optional
enum Outputs { kLoss, kDx, kDWeight };  // f32 [2]; the gradients are kNone in evaluation

// The CPU kernel's scratch, in floats: the chunk's logits, three numbers for each of its tokens and
// what the ranks of the group send of them, and float32 copies of the chunk and of a block of the
// weight's rows with its gradient (used for bf16).
struct Scratch {
  std::int64_t logits, stats, exchange, chunk_copy, weight_rows, weight_copy;
  static Scratch of(std::int64_t chunk, std::int64_t width, std::int64_t vocabulary,
                    std::int64_t members) {
    const std::int64_t rows = std::min<std::int64_t>(vocabulary, 1024);
    return {chunk * vocabulary, 3 * chunk, members > 1 ? 2 * chunk * members : 0,
            2 * chunk * width,  rows,      2 * rows * width};
  }
  std::int64_t bytes() const { return 4 * (logits + stats + exchange + chunk_copy + weight_copy); }
};

// A device's scratch, in bytes: the chunk's logits in the working precision, rows padded to 16
// bytes; two losses and four statistics for each token; and what the matrix library wants.
struct DeviceScratch {
  std::int64_t ld, losses_offset, workspace_offset, bytes;
  static DeviceScratch of(std::int64_t chunk, std::int64_t vocabulary, DType dtype) {
    const auto aligned = [](std::int64_t size) { return (size + 255) / 256 * 256; };
    const std::int64_t ld = (vocabulary + 7) / 8 * 8;
    const std::int64_t losses = aligned(chunk * ld * size_of(dtype));
    const std::int64_t workspace = aligned(losses + 6 * 4 * chunk);
    return {ld, losses, workspace, workspace + matmul::kDeviceWorkspace};
  }
};
}  // namespace linear_cross_entropy

}  // namespace quintet
