// Activations that leave the codes of their result instead of the result.
#pragma once

#include "runtime/cuda/kernel.h"

namespace quintet::cuda {

// Of either op kind.
void activation_codes(const OpContext& op);

}  // namespace quintet::cuda
