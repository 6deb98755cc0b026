// Sobol's sequence: points that fill the unit cube evenly, each next one in the largest gap.
// Direction numbers of Joe and Kuo (2008, new-joe-kuo-6), in the order of Gray's code.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace quintet {

inline constexpr std::size_t kSobolDimensions = 32;

// Coordinate `dimension` of point `index`, as a fraction of 2^32. The first point is the origin.
std::uint32_t sobol(std::uint32_t index, std::size_t dimension);

// The point in [0, 1)^dimensions, moved by a digital shift of the seed's: still Sobol's in what
// makes it even, and another one for each seed.
std::vector<double> shifted_sobol(std::uint64_t seed, std::uint32_t index, std::size_t dimensions);

}  // namespace quintet
