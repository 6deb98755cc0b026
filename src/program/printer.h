// A program as text: one line a tensor that lives through the step, one line an op. Stable, so that
// two programs can be compared with `diff`.
#pragma once

#include <string>

#include "program/program.h"

namespace quintet {

// One op as a line, without its number: "compute fwd encoder.0 mb0  %7 x f32[2,8] @512 = add(%3,
// %4)".
std::string to_string(const Program& program, const Op& op);
std::string to_string(const Program& program);

// 16 hexadecimal digits that are the same for the same text: tells whether two runs ran the same
// program.
std::string fingerprint_of(const Program& program);

}  // namespace quintet
