// Pass 1: appends to a forward program the ops that compute the gradients of all its weights, by
// reversing the ops and asking each one's declaration for its rule.
#pragma once

#include "program/program.h"

namespace quintet {

void autodiff(Program& program);

}  // namespace quintet
