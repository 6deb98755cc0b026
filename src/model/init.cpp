#include "model/init.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/parallel_for.h"
#include "base/philox.h"

namespace quintet {
namespace {

// A large model has billions of values: blocks of random words are turned into them many at a time,
// in plain loops without calls or branches, which compilers make vector instructions of.
constexpr std::size_t kBlocks = 64;

// Exact for whole numbers below 2^52.
inline double to_double(std::uint64_t whole) {
  return std::bit_cast<double>(whole | 0x4330000000000000ull) - 0x1p52;
}

// Of a normal number above 0; to 2e-16.
inline double natural_log(double x) {
  constexpr std::uint64_t kMantissa = (1ull << 52) - 1, kRootOfTwo = 0x6a09e667f3bcdull;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t above = (bits & kMantissa) > kRootOfTwo ? 1 : 0;
  const double exponent = to_double((bits >> 52) + above) - 1023;
  // In [sqrt(1/2), sqrt(2)]: log(m) = 2 artanh(s).
  const double m = std::bit_cast<double>((bits & kMantissa) | ((1023 - above) << 52));
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 1.0 / 21;
  for (int n = 19; n >= 1; n -= 2) sum = sum * z + 1.0 / n;
  return exponent * std::numbers::ln2 + 2 * s * sum;
}

// Sine and cosine of x in [-pi / 4, pi / 4]; to 2e-16.
inline double small_sine(double x) {
  const double z = x * x;
  double sum = 1;
  for (int n = 16; n >= 2; n -= 2) sum = 1 - sum * (z * (1.0 / (n * (n + 1))));
  return x * sum;
}
inline double small_cosine(double x) {
  const double z = x * x;
  double sum = 1;
  for (int n = 17; n >= 1; n -= 2) sum = 1 - sum * (z * (1.0 / (n * (n + 1))));
  return sum;
}

// Standard normal values from Philox blocks [first, first + kBlocks), four from each (Box and
// Muller: one word is the radius, the next the angle).
void normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
             double (&out)[kBlocks][4]) {
  std::uint64_t words[4][kBlocks];
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const auto block = philox(seed, stream, first + i);
    for (std::size_t word = 0; word < 4; ++word) words[word][i] = block[word];
  }
  double cosines[kBlocks], sines[kBlocks];
  for (std::size_t pair = 0; pair < 2; ++pair) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const double u = (to_double(words[2 * pair][i]) + 0.5) * 0x1p-32;  // never 0
      const double radius = std::sqrt(-2 * natural_log(u));
      // 2^32 is a full turn: the nearest quarter, and what is left.
      const std::uint64_t turn = words[2 * pair + 1][i];
      const std::uint64_t quarter = (turn + (1ull << 29)) >> 30;
      const double angle =
          (to_double(turn) - to_double(quarter << 30)) * (0x1p-31 * std::numbers::pi);
      const double sine = small_sine(angle), cosine = small_cosine(angle);
      const double along = (quarter & 1) != 0 ? sine : cosine;
      const double across = (quarter & 1) != 0 ? cosine : sine;
      cosines[i] = radius * (((quarter + 1) & 2) != 0 ? -along : along);
      sines[i] = radius * ((quarter & 2) != 0 ? -across : across);
    }
    for (std::size_t i = 0; i < kBlocks; ++i) {
      out[i][2 * pair] = cosines[i];
      out[i][2 * pair + 1] = sines[i];
    }
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
  constexpr std::int64_t kValues = 4 * kBlocks;
  parallel_for(count, 1 << 12, [&](std::int64_t begin, std::int64_t end, int) {
    double drawn[kBlocks][4];
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t skipped = (first + i) % kValues;
      normals(seed, stream, static_cast<std::uint64_t>(first + i - skipped) / 4, drawn);
      const std::int64_t taken = std::min(kValues - skipped, end - i);
      const double* from = &drawn[0][0] + skipped;
      for (std::int64_t j = 0; j < taken; ++j)
        values[static_cast<std::size_t>(i + j)] = static_cast<float>(weight.init_std * from[j]);
      i += taken;
    }
  });
}

}  // namespace quintet
