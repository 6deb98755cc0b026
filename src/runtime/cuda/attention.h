// Attention's operands as its kernels see them, and the kernels that can be asked to compute it.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "runtime/cuda/kernel.h"

namespace quintet::cuda {

// Any type, head size up to 128, all options. attention.cu decides who computes an op.
void plain_attention(const OpContext& op);
void plain_attention_backward(const OpContext& op);

}  // namespace quintet::cuda
