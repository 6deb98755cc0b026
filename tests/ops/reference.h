// What each op computes, in float64 and as plainly as possible, straight from its definition.
// Inputs are in the order of the op's slots.
#pragma once

#include <vector>

#include "tests/ops/op_case.h"

namespace quintet::testing {

using Tensors = std::vector<HostTensor>;

HostTensor reference_embedding(const Tensors& in);
HostTensor reference_rms_norm(const Tensors& in, double epsilon);
HostTensor reference_matmul(const Tensors& in, const MatmulAttrs& attrs);
HostTensor reference_activation(const Tensors& in, const ActivationAttrs& attrs);
HostTensor reference_dropout(const Tensors& in, const DropoutAttrs& attrs);

struct AttentionResult {
  HostTensor out, lse;
};
AttentionResult reference_attention(const Tensors& in, const AttentionAttrs& attrs);

// {cross-entropy, z-loss}, both means.
HostTensor reference_loss(const Tensors& in, const LinearCrossEntropyAttrs& attrs);

// 0 or 1 / (1 - rate).
double reference_mask(double rate, std::uint64_t seed, std::uint64_t site, std::int64_t step,
                      std::int64_t index);

}  // namespace quintet::testing
