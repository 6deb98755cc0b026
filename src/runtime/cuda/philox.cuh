// Random words (base/philox.h) and dropout masks on the device: the same functions of their place
// as everywhere.
#pragma once

#include <cstdint>

namespace quintet::cuda {

// One instruction, which the compiler does not find by itself.
__device__ __forceinline__ void wide_product(std::uint32_t a, std::uint32_t b, std::uint32_t& low,
                                             std::uint32_t& high) {
  asm("{ .reg .u64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p; }"
      : "=r"(low), "=r"(high)
      : "r"(a), "r"(b));
}

// base/philox.h.
__device__ __forceinline__ uint4 philox_words(std::uint64_t seed, std::uint64_t stream,
                                              std::uint64_t index) {
  std::uint32_t c0 = static_cast<std::uint32_t>(index),
                c1 = static_cast<std::uint32_t>(index >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream),
                c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    std::uint32_t low0, high0, low1, high1;
    wide_product(0xD2511F53u, c0, low0, high0);
    wide_product(0xCD9E8D57u, c2, low1, high1);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

struct DropoutMask {
  std::uint64_t seed, site;
  std::uint32_t threshold;
  float scale;

  DropoutMask(float rate, std::uint64_t seed, std::uint64_t site)
      : seed(seed),
        site(site),
        threshold(static_cast<std::uint32_t>(static_cast<double>(rate) * 0x1p32)),
        scale(1.0f / (1.0f - rate)) {}
};

// A mask at one step. Four neighbouring elements share a Philox block: the last one drawn is kept.
class MaskReader {
 public:
  __device__ MaskReader(const DropoutMask& mask, std::int64_t step)
      : mask_(mask),
        stream_(mask.site + static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15ull) {}

  // 0, or 1 / (1 - rate).
  __device__ float factor(std::int64_t index) {
    const auto at = static_cast<std::uint64_t>(index);
    if ((at >> 2) != block_) words_ = philox_words(mask_.seed, stream_, block_ = at >> 2);
    const unsigned lane = static_cast<unsigned>(at & 3);
    const std::uint32_t word = lane == 0   ? words_.x
                               : lane == 1 ? words_.y
                               : lane == 2 ? words_.z
                                           : words_.w;
    return word >= mask_.threshold ? mask_.scale : 0.0f;
  }

 private:
  const DropoutMask mask_;
  const std::uint64_t stream_;
  std::uint64_t block_ = ~std::uint64_t{0};
  uint4 words_{};
};

}  // namespace quintet::cuda
