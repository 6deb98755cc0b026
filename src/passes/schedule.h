// Pass 3: from the program of one micro-batch to the program of a step. Each micro-batch gets its
// own copy of every activation and op; weights, gradients and the loss are shared, and accumulate
// in program order.
#pragma once

#include "program/program.h"

namespace quintet {

void schedule_micro_batches(Program& program, std::int32_t micro_batches);

}  // namespace quintet
