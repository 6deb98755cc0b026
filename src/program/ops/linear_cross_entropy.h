// The output layer and the loss as one op: logits = scale * X W^T, cross-entropy against the
// labels, and the gradients of both operands in the same pass. Tokens are taken in chunks, so the
// logits of a 250,112 word vocabulary never exist for more than `chunk` tokens.
//
//   loss[0] += sum over counted labels of (logsumexp - target) / count
//   loss[1] += sum over counted labels of z_loss * logsumexp^2 / count
//
// where target = (1 - smoothing) logit[label] + smoothing * mean of all words' logits,
// and dX, dW are the gradients of loss[0] + loss[1]. Labels below zero do not count.
//
// Under tensor parallelism the weight is this rank's run of words and x the same on all ranks of
// the group; they exchange three numbers for each token, and nobody holds whole logits. dX is then
// this rank's contribution to a sum over the group.
#pragma once

#include <cstdint>

namespace quintet {

struct LinearCrossEntropyAttrs {
  std::int64_t chunk = 0;  // tokens whose logits exist at one time
  float scale = 1;         // d_model^-0.5 where the head is tied to the embedding
  float z_loss = 0;
  float smoothing = 0;          // share of the target that is spread evenly over all words
  std::int64_t first_word = 0;  // id of the weight's first row
  std::int64_t words = 0;       // rows that are words; what follows is padding
  std::int64_t all_words = 0;   // of the whole group; 0: as many as are here
  std::int32_t group = -1;      // -1: this rank has all words
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("chunk", chunk);
    visit("scale", scale);
    visit("z_loss", z_loss);
    visit("smoothing", smoothing);
  }
};

namespace linear_cross_entropy {
enum Inputs { kX, kWeight, kLabels, kCount, kLossAddend, kDWeightAddend };  // addends optional
// f32 [2]; the gradients are kNone in evaluation; each label's own cross-entropy, f32 in the
// labels' shape and zero where a label does not count, kNone in training.
enum Outputs { kLoss, kDx, kDWeight, kTokenLoss };
}  // namespace linear_cross_entropy

}  // namespace quintet
