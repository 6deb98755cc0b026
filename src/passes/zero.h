// Pass 5: data parallelism. Units become buckets; each bucket's gradients are summed over the
// data-parallel ranks, and what the stage says is shared out among them:
//
//   stage 0  nothing: gradients are all-reduced, every rank updates everything
//   stage 1  optimizer state: gradients are reduce-scattered at the end of the step, each rank
//   updates its part, the
//            parameters are gathered again
//   stage 2  and gradients: they are reduce-scattered after every micro-batch's backward and never
//   exist whole
//            longer than that
//   stage 3  and parameters: each bucket is gathered before it is used and dropped after it
//
// Also settles what the other methods leave to the end of the step: gradients of weights that
// tensor-parallel ranks have in common, or that several pipeline stages share, are summed over
// them.
#pragma once

#include "parallel/grid.h"
#include "program/program.h"

namespace quintet {

// On the program of a step before its update. Inserts the collectives and fills Program::shards.
// `measure_noise`: also what the gradient noise scale needs beside the norm of the whole gradient,
// io.micro_square; not in a pipeline, where stages have parts of one gradient.
void zero(Program& program, const Grid& grid, const LayoutConfig& layout,
          bool measure_noise = false);

// On the program with its update: gathers parameters that are kept whole but were updated in parts.
void gather_updated_parameters(Program& program);

}  // namespace quintet
