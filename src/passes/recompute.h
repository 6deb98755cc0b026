// Pass 2: trades time for memory. Values of the forward that the backward needs are dropped after
// their last forward use and computed again, just before the backward first asks for them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "program/program.h"

namespace quintet {

enum class Recompute : std::uint8_t {
  kNone,       // keep everything
  kSelective,  // redo what costs no matrix product: norms, gated activations, dropout
  kFull        // keep only what crosses from one unit to the next; redo each layer as a whole
};

Result<Recompute> parse_recompute(std::string_view name);

// Works on the program of one micro-batch, after autodiff. Redone ops are the same ops on the same
// values, so the gradients keep every bit.
void recompute(Program& program, Recompute mode);

}  // namespace quintet
