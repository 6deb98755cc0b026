// The float32 weights an optimizer updates, in one of three forms: float32 that is the working copy
// itself; float32 beside a bf16 working copy; or a bf16 working copy and the 16 bits it lacks
// (base/remainder.h).
#pragma once

#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {

struct Master {
  float* full = nullptr;
  std::int16_t* remainder = nullptr;
  dbf16* working = nullptr;  // null where `full` is the working copy

  bool is_wide() const {
    return cuda::is_wide(full) && cuda::is_wide(remainder) && cuda::is_wide(working);
  }

  template <int N>
  __device__ __forceinline__ void load(std::int64_t i, float (&w)[N]) const {
    if (full != nullptr) {
      load_floats<N>(full + i, w);
      return;
    }
    const Pack<std::int16_t, N> low = load_pack<N>(remainder + i);
    const Pack<dbf16, N> high = load_pack<N>(working + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const auto bits = static_cast<std::uint32_t>(__bfloat16_as_ushort(high.v[j])) << 16;
      w[j] = __uint_as_float(bits + static_cast<std::uint32_t>(static_cast<int>(low.v[j])));
    }
  }

  template <int N>
  __device__ __forceinline__ void store(std::int64_t i, const float (&w)[N]) const {
    if (full != nullptr) {
      store_floats<N>(full + i, w);
      if (working != nullptr) store_floats<N>(working + i, w);
      return;
    }
    Pack<std::int16_t, N> low;
    Pack<dbf16, N> high;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const std::uint32_t bits = __float_as_uint(w[j]);
      const std::uint32_t upper = (bits + 0x8000u) >> 16;
      high.v[j] = __ushort_as_bfloat16(static_cast<unsigned short>(upper));
      low.v[j] = static_cast<std::int16_t>(bits - (upper << 16));
    }
    store_pack<N>(remainder + i, low);
    store_pack<N>(working + i, high);
  }
};

// A running mean of the weights, where one is kept.
struct Ema {
  float* mean = nullptr;
  float decay = 0;

  template <int N>
  __device__ __forceinline__ void add(std::int64_t i, const float (&w)[N]) const {
    if (mean == nullptr) return;
    float value[N];
    load_floats<N>(mean + i, value);
#pragma unroll
    for (int j = 0; j < N; ++j) value[j] = decay * value[j] + (1 - decay) * w[j];
    store_floats<N>(mean + i, value);
  }
};

}  // namespace quintet::cuda
