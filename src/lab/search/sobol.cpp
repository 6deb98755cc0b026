#include "lab/search/sobol.h"

#include <bit>

#include "base/check.h"
#include "base/philox.h"

namespace quintet {
namespace {

constexpr int kBits = 32;

struct Direction {
  std::uint32_t polynomial;            // over GF(2), with its first and last coefficient
  std::array<std::uint32_t, 7> first;  // as many as its degree
};
// Lines 2 to 32 of new-joe-kuo-6.21201; the first dimension is van der Corput's sequence.
constexpr std::array<Direction, kSobolDimensions - 1> kDirections = {{
    {3, {1}},
    {7, {1, 3}},
    {11, {1, 3, 1}},
    {13, {1, 1, 1}},
    {19, {1, 1, 3, 3}},
    {25, {1, 3, 5, 13}},
    {37, {1, 1, 5, 5, 17}},
    {41, {1, 1, 5, 5, 5}},
    {47, {1, 1, 7, 11, 19}},
    {55, {1, 1, 5, 1, 1}},
    {59, {1, 1, 1, 3, 11}},
    {61, {1, 3, 5, 5, 31}},
    {67, {1, 3, 3, 9, 7, 49}},
    {91, {1, 1, 1, 15, 21, 21}},
    {97, {1, 3, 1, 13, 27, 49}},
    {103, {1, 1, 1, 15, 7, 5}},
    {109, {1, 3, 1, 15, 13, 25}},
    {115, {1, 1, 5, 5, 19, 61}},
    {131, {1, 3, 7, 11, 23, 15, 103}},
    {137, {1, 3, 7, 13, 13, 15, 69}},
    {143, {1, 1, 3, 13, 7, 35, 63}},
    {145, {1, 3, 5, 9, 1, 25, 53}},
    {157, {1, 3, 1, 13, 9, 35, 107}},
    {167, {1, 3, 1, 5, 27, 61, 31}},
    {171, {1, 1, 5, 11, 19, 41, 61}},
    {185, {1, 3, 5, 3, 3, 13, 69}},
    {191, {1, 1, 7, 13, 1, 19, 1}},
    {193, {1, 3, 7, 5, 13, 19, 59}},
    {203, {1, 1, 3, 9, 25, 29, 41}},
    {211, {1, 3, 5, 13, 23, 1, 55}},
    {213, {1, 3, 7, 3, 13, 59, 17}},
}};

constexpr std::array<std::uint32_t, kBits> numbers_of(std::size_t dimension) {
  std::array<std::uint32_t, kBits> numbers{};
  if (dimension == 0) {
    for (int i = 0; i < kBits; ++i) numbers[static_cast<std::size_t>(i)] = 1u << (kBits - 1 - i);
    return numbers;
  }
  const Direction& direction = kDirections[dimension - 1];
  const int degree = std::bit_width(direction.polynomial) - 1;
  for (int i = 0; i < kBits; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i < degree) {
      numbers[at] = direction.first[at] << (kBits - 1 - i);
      continue;
    }
    const std::uint32_t before = numbers[at - static_cast<std::size_t>(degree)];
    numbers[at] = before ^ (before >> degree);
    for (int k = 1; k < degree; ++k) {
      if ((direction.polynomial >> (degree - k)) & 1u)
        numbers[at] ^= numbers[at - static_cast<std::size_t>(k)];
    }
  }
  return numbers;
}

}  // namespace

std::uint32_t sobol(std::uint32_t index, std::size_t dimension) {
  QT_CHECK(dimension < kSobolDimensions, "dimension {}", dimension);
  static const auto kNumbers = [] {
    std::array<std::array<std::uint32_t, kBits>, kSobolDimensions> all{};
    for (std::size_t d = 0; d < kSobolDimensions; ++d) all[d] = numbers_of(d);
    return all;
  }();
  std::uint32_t point = 0;
  for (std::uint32_t gray = index ^ (index >> 1), bit = 0; gray != 0; gray >>= 1, ++bit) {
    if (gray & 1u) point ^= kNumbers[dimension][bit];
  }
  return point;
}

std::vector<double> shifted_sobol(std::uint64_t seed, std::uint32_t index, std::size_t dimensions) {
  std::vector<double> point(dimensions);
  for (std::size_t d = 0; d < dimensions; ++d) {
    const std::uint32_t shift = philox(seed, stream_of("search.sobol"), d)[0];
    point[d] = (sobol(index, d) ^ shift) * 0x1p-32;
  }
  return point;
}

}  // namespace quintet
