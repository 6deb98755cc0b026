// Philox4x32-10, a counter-based random generator (Salmon et al., 2011): the value at an index is a
// pure function of (seed, stream, index), so initial weights and dropout masks do not depend on
// which rank, thread or device computes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quintet {

// Four random words for one counter value.
constexpr std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream,
                                              std::uint64_t index) {
  std::uint32_t c0 = static_cast<std::uint32_t>(index),
                c1 = static_cast<std::uint32_t>(index >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream),
                c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0;
    const std::uint64_t p1 = 0xCD9E8D57ull * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// The words of `count` counter values from `index` on, four each: a loop that becomes vector code.
inline void philox_blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t index,
                          std::uint64_t count, std::uint32_t* words) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto block = philox(seed, stream, index + i);
    for (std::size_t word = 0; word < 4; ++word) words[4 * i + word] = block[word];
  }
}

// A stream number for a name (FNV-1a, 64 bits).
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  return hash;
}

// A sequence of values from one (seed, stream), for code that draws until it is done.
class PhiloxSequence {
 public:
  PhiloxSequence(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  std::uint32_t next() {
    if (used_ == 4) {
      words_ = philox(seed_, stream_, block_++);
      used_ = 0;
    }
    return words_[used_++];
  }
  // Uniform in [0, 1), 32 bits of it.
  double uniform() { return next() * 0x1p-32; }
  // Uniform in [0, bound), without bias (Lemire, 2019).
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{next()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = -bound % bound;
      while (static_cast<std::uint32_t>(product) < threshold)
        product = std::uint64_t{next()} * bound;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint64_t seed_, stream_, block_ = 0;
  std::array<std::uint32_t, 4> words_{};
  unsigned used_ = 4;
};

}  // namespace quintet
