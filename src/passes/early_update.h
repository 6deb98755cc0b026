// Pass 7, where nothing has to be known of all gradients before the first of them is used: clipping
// is off, and no step is judged by its norm. Each update goes up to where its gradient is final, in
// the middle of the backward. The gradient's memory is free from there on, and what updates send or
// fetch goes on beside the rest of the backward. The same ops on the same values: every bit stays.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace quintet {

// `first` is where the update's ops begin. Those that nothing keeps behind the backward leave it.
void update_early(Program& program, std::size_t first);

}  // namespace quintet
