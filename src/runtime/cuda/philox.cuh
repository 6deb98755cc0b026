// The dropout mask on the device: the same function of (seed, site, step, index) as everywhere.
#pragma once

#include <cstdint>

namespace quintet::cuda {

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
    if ((at >> 2) != block_) draw(block_ = at >> 2);
    const unsigned lane = static_cast<unsigned>(at & 3);
    const std::uint32_t word = lane == 0 ? w0_ : lane == 1 ? w1_ : lane == 2 ? w2_ : w3_;
    return word >= mask_.threshold ? mask_.scale : 0.0f;
  }

 private:
  __device__ void draw(std::uint64_t index) {
    std::uint32_t c0 = static_cast<std::uint32_t>(index),
                  c1 = static_cast<std::uint32_t>(index >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(stream_),
                  c3 = static_cast<std::uint32_t>(stream_ >> 32);
    std::uint32_t k0 = static_cast<std::uint32_t>(mask_.seed),
                  k1 = static_cast<std::uint32_t>(mask_.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const std::uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
      const std::uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
      c0 = high1 ^ c1 ^ k0;
      c1 = low1;
      c2 = high0 ^ c3 ^ k1;
      c3 = low0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    w0_ = c0;
    w1_ = c1;
    w2_ = c2;
    w3_ = c3;
  }

  const DropoutMask mask_;
  const std::uint64_t stream_;
  std::uint64_t block_ = ~std::uint64_t{0};
  std::uint32_t w0_ = 0, w1_ = 0, w2_ = 0, w3_ = 0;
};

}  // namespace quintet::cuda
