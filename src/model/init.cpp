#include "model/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/parallel_for.h"
#include "base/philox.h"

namespace quintet {
namespace {

// Four standard normal values from one Philox block (Box and Muller).
void normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t block, double out[4]) {
  const auto words = philox(seed, stream, block);
  for (unsigned pair = 0; pair < 2; ++pair) {
    const double u = (static_cast<double>(words[2 * pair]) + 0.5) * 0x1p-32;  // never 0
    const double angle = static_cast<double>(words[2 * pair + 1]) * (0x1p-31 * std::numbers::pi);
    const double radius = std::sqrt(-2 * std::log(u));
    out[2 * pair] = radius * std::cos(angle);
    out[2 * pair + 1] = radius * std::sin(angle);
  }
}

}  // namespace

void initial_values(const Weight& weight, std::uint64_t seed, std::int64_t first,
                    std::span<float> values) {
  if (weight.init_std == 0) {
    std::fill(values.begin(), values.end(), static_cast<float>(weight.init_value));
    return;
  }
  const std::uint64_t stream = stream_of(weight.name);
  const auto count = static_cast<std::int64_t>(values.size());
  parallel_for(count, 1 << 12, [&](std::int64_t begin, std::int64_t end, int) {
    std::uint64_t have = ~std::uint64_t{0};
    double block[4] = {};
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::uint64_t>(first + i);
      if (at / 4 != have) normals(seed, stream, have = at / 4, block);
      values[static_cast<std::size_t>(i)] = static_cast<float>(weight.init_std * block[at % 4]);
    }
  });
}

}  // namespace quintet
