// AdamW's moments in fewer bytes (base/moments.h), as a warp reads and writes a block of them.
#pragma once

#include "base/moments.h"
#include "program/ops/adamw.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {

struct HalfMoments {
  dbf16 *m, *v;
  struct NoScales {};

  explicit HalfMoments(const OpContext& op)
      : m(op.out_data<dbf16>(adamw::kMOut)), v(op.out_data<dbf16>(adamw::kVOut)) {}
  bool is_wide() const { return cuda::is_wide(m) && cuda::is_wide(v); }

  __device__ NoScales scales(std::int64_t) const { return {}; }
  template <int P, int N>
  __device__ NoScales new_scales(std::int64_t, const float (&)[P][N], const float (&)[P][N]) const {
    return {};
  }
  template <int N>
  __device__ __forceinline__ void load(std::int64_t i, NoScales, float (&m1)[N],
                                       float (&v1)[N]) const {
    load_floats<N>(m + i, m1);
    load_floats<N>(v + i, v1);
  }
  template <int N>
  __device__ __forceinline__ void store(std::int64_t i, NoScales, const float (&m1)[N],
                                        const float (&v1)[N],
                                        const std::uint32_t (&random)[N]) const {
    Pack<dbf16, N> m_pack, v_pack;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      m_pack.v[j] = __ushort_as_bfloat16(rounded_to_bf16(m1[j], random[j] & 0xffff));
      v_pack.v[j] = __ushort_as_bfloat16(rounded_to_bf16(v1[j], random[j] >> 16));
    }
    store_pack<N>(m + i, m_pack);
    store_pack<N>(v + i, v_pack);
  }
};

// MomentCode, bit for bit, in fewer instructions: moved down so far that 2^-e is the least normal
// float32, the upper bits of a magnitude are its code, below the normal numbers, too. (The CPU
// flushes those to zero.)
template <int kBits>
struct DeviceMomentCode {
  static constexpr std::uint32_t kExponent = MomentCode<kBits>::kOctaves - 1;
  static constexpr float kDown = std::bit_cast<float>(kExponent << 23), kUp = 1 / kDown;

  static constexpr float value(std::uint32_t code) {
    return std::bit_cast<float>(code << 20) * kUp;
  }
  static constexpr std::uint32_t of(float magnitude, std::uint32_t random) {
    constexpr std::uint32_t kLast = MomentCode<kBits>::kLast;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude * kDown);
    const std::uint32_t code = (bits + (random << 4)) >> 20;
    return code < kLast ? code : kLast;
  }
};

struct CodedMoments {
  std::uint8_t *m, *v;
  float *m_scales, *v_scales;
  struct Scales {
    float m, v;  // or their inverses, of new ones
  };

  explicit CodedMoments(const OpContext& op)
      : m(op.out_data<std::uint8_t>(adamw::kMOut)),
        v(op.out_data<std::uint8_t>(adamw::kVOut)),
        m_scales(op.out_data<float>(adamw::kMScalesOut)),
        v_scales(op.out_data<float>(adamw::kVScalesOut)) {}
  // Four codes are four bytes.
  bool is_wide() const {
    return (reinterpret_cast<std::uintptr_t>(m) | reinterpret_cast<std::uintptr_t>(v)) % 4 == 0;
  }

  __device__ Scales scales(std::int64_t block) const { return {m_scales[block], v_scales[block]}; }
  // Those of the whole warp's values, which it keeps; their inverses.
  template <int P, int N>
  __device__ __forceinline__ Scales new_scales(std::int64_t block, const float (&m1)[P][N],
                                               const float (&v1)[P][N]) const {
    float m_largest = 0, v_largest = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        m_largest = fmaxf(m_largest, fabsf(m1[p][j]));
        v_largest = fmaxf(v_largest, v1[p][j]);
      }
    }
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
      m_largest = fmaxf(m_largest, __shfl_xor_sync(0xffffffffu, m_largest, other));
      v_largest = fmaxf(v_largest, __shfl_xor_sync(0xffffffffu, v_largest, other));
    }
    const float m_scale = moment_scale(m_largest), v_scale = moment_scale(v_largest);
    if (threadIdx.x % 32 == 0) {
      m_scales[block] = m_scale;
      v_scales[block] = v_scale;
    }
    return {inverse_moment_scale(m_scale), inverse_moment_scale(v_scale)};
  }
  template <int N>
  __device__ __forceinline__ void load(std::int64_t i, Scales scale, float (&m1)[N],
                                       float (&v1)[N]) const {
    const Pack<std::uint8_t, N> m_pack = load_pack<N>(m + i), v_pack = load_pack<N>(v + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const std::uint32_t code = m_pack.v[j];
      const float magnitude = DeviceMomentCode<7>::value(code & 0x7fu) * scale.m;
      m1[j] = __uint_as_float(__float_as_uint(magnitude) | (code & 0x80u) << 24);
      v1[j] = DeviceMomentCode<8>::value(v_pack.v[j]) * scale.v;
    }
  }
  template <int N>
  __device__ __forceinline__ void store(std::int64_t i, Scales inverse, const float (&m1)[N],
                                        const float (&v1)[N],
                                        const std::uint32_t (&random)[N]) const {
    Pack<std::uint8_t, N> m_pack, v_pack;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      m_pack.v[j] = FirstMoment::code<DeviceMomentCode<7>>(m1[j], inverse.m, random[j] & 0xffff);
      v_pack.v[j] = SecondMoment::code<DeviceMomentCode<8>>(v1[j], inverse.v, random[j] >> 16);
    }
    store_pack<N>(m + i, m_pack);
    store_pack<N>(v + i, v_pack);
  }
};

}  // namespace quintet::cuda
