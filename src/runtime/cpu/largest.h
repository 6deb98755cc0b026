// The largest magnitude of a tensor, beside it for the op that will round it
// (program/ops/quantize.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/parallel_for.h"
#include "program/ops/quantize.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {

// As bits: those of a number that is not finite are larger than any other's.
template <class T>
std::uint32_t largest_magnitude(const T* x, std::int64_t count) {
  std::atomic<std::uint32_t> largest = 0;
  parallel_for(count, kElementGrain, [&](std::int64_t begin, std::int64_t end, int) {
    std::uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (std::int64_t i = begin; i < end; ++i)
      most = std::max(most, std::bit_cast<std::uint32_t>(static_cast<float>(x[i])) & 0x7fffffffu);
    std::uint32_t seen = largest.load();
    while (seen < most && !largest.compare_exchange_weak(seen, most)) {
    }
  });
  return largest;
}

// Of an op's result, if it was asked for.
template <class T>
void leave_largest(const OpContext& op, int result, int slot) {
  auto* largest = op.out_data<std::uint32_t>(slot);
  if (largest == nullptr) return;
  std::fill_n(largest, quantize::kSlots, 0u);
  largest[0] = largest_magnitude(op.out_data<T>(result), op.out(result).shape.numel());
}

}  // namespace quintet::cpu
