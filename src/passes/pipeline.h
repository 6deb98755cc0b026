// Pass 4: from the program of one micro-batch of the whole model to a stage's program of a step.
// Takes this stage's pieces of the model, repeats them for every micro-batch in the order of the
// schedule, and sends what crosses from one piece to the next: hidden states and the encoder's
// output forward, their gradients back, hop by hop. With one stage that is plain gradient
// accumulation.
//
// Activations of a micro-batch are its own; weights, gradients and the loss are shared by all of
// them. Every op that adds to a gradient reads what it adds to; accumulation.h decides who comes
// first.
#pragma once

#include "parallel/grid.h"
#include "passes/pipeline_order.h"
#include "program/program.h"

namespace quintet {

// `order` is this stage's; `grid` says which rank has the neighbouring pieces.
void pipeline(Program& program, const Grid& grid, const std::vector<PipelineAction>& order,
              std::int32_t micro_batches);

}  // namespace quintet
