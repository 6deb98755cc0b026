// Pass 8, after the update is there: memory beside the device's. A share of the optimizer's state
// lives in host memory and visits the device for its update: copied in ahead of it, copied out
// behind it, on a stream for each direction, while other state is being updated. Never more than
// three visitors are there at a time: the one being updated, the next and the last.
#pragma once

#include "program/program.h"

namespace quintet {

// On the program with its update. `share` is that of the bytes of master weights and moments, from
// 0 to 1.
void offload(Program& program, double share);

}  // namespace quintet
