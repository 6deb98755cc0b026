// A random order of 0 to size - 1 that is computed, not stored: place i of the order is a function
// of (size, seed, stream, i). A Feistel network permutes the next larger power of two; what falls
// outside is sent through again until it falls inside (Black and Rogaway, 2002).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/philox.h"

namespace quintet {

class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream) : size_(size) {
    QT_CHECK(size > 0, "an order of nothing");
    const int bits = std::max(2, static_cast<int>(std::bit_width(size - 1)));
    low_bits_ = bits / 2;
    high_bits_ = bits - low_bits_;
    for (std::size_t round = 0; round < kRounds; ++round) {
      const auto words = philox(seed, stream, round);
      keys_[round] = std::uint64_t{words[0]} << 32 | words[1];
    }
  }

  std::uint64_t operator()(std::uint64_t i) const {
    QT_CHECK(i < size_, "place {} of {}", i, size_);
    do {
      i = network(i);
    } while (i >= size_);
    return i;
  }

 private:
  static constexpr std::size_t kRounds = 8;  // an even number: the halves end up where they began

  // Mixes all bits of x (the finalizer of MurmurHash3).
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53;
    return x ^ x >> 33;
  }
  std::uint64_t network(std::uint64_t x) const {
    // Halves of unequal size alternate: each round changes one by a function of the other.
    std::uint64_t low = x & ((std::uint64_t{1} << low_bits_) - 1), high = x >> low_bits_;
    for (std::size_t round = 0; round < kRounds; round += 2) {
      high ^= mix(low ^ keys_[round]) & ((std::uint64_t{1} << high_bits_) - 1);
      low ^= mix(high ^ keys_[round + 1]) & ((std::uint64_t{1} << low_bits_) - 1);
    }
    return high << low_bits_ | low;
  }

  std::uint64_t size_;
  int low_bits_, high_bits_;
  std::array<std::uint64_t, kRounds> keys_{};
};

}  // namespace quintet
