// Pass 3, of trainings in eight bits: what an op makes only to be rounded, it rounds itself. The
// result in sixteen bits is then neither written nor read; the codes are the same to the bit.
//
// Of norms, of activations and of the activations' gradients (quantize::at_source).
#pragma once

#include "program/program.h"

namespace quintet {

// Works on the program of one micro-batch, after recompute.
void quantize_at_source(Program& program);

}  // namespace quintet
