// Initial weights. The value of an element depends on the seed, the weight's name and the element's
// index in the whole weight, and on nothing else: not on the rank, the layout or the order of
// initialisation.
#pragma once

#include <cstdint>
#include <span>

#include "program/program.h"

namespace quintet {

// Fills `values` with elements [first, first + values.size()) of a weight.
void initial_values(const Weight& weight, std::uint64_t seed, std::int64_t first,
                    std::span<float> values);

}  // namespace quintet
