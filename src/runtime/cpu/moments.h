// AdamW's moments in fewer bytes (base/moments.h), a block at a time: read into float32 buffers,
// updated there, rounded and written back.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/moments.h"
#include "program/ops/adamw.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {

struct MomentBuffers {
  float m[kMomentBlock], v[kMomentBlock];

  // The random bits of an op's elements from `first` on. Neighbours in the weight are drawn
  // together.
  const std::uint32_t* draw(const MomentPlace& place, std::int64_t step, std::int64_t first,
                            std::int64_t count) {
    if (place.apart != 0) {
      MomentWords words(place, step);
      for (std::int64_t i = 0; i < count; ++i) words_[i] = words.at(place.element(first + i));
      return words_;
    }
    const auto element = static_cast<std::uint64_t>(place.element(first));
    philox_blocks(place.seed, place.stream(step), element / 4, kBlocks, words_);
    return words_ + element % 4;
  }

 private:
  static constexpr std::uint64_t kBlocks = kMomentBlock / 4 + 1;
  std::uint32_t words_[4 * kBlocks];
};

// `first` is a multiple of kMomentBlock, `count` no more than that.
struct HalfMoments {
  bf16 *m, *v;

  explicit HalfMoments(const OpContext& op)
      : m(op.out_data<bf16>(adamw::kMOut)), v(op.out_data<bf16>(adamw::kVOut)) {}

  void load(std::int64_t first, std::int64_t count, MomentBuffers& to) const {
    for (std::int64_t i = 0; i < count; ++i) {
      to.m[i] = m[first + i];
      to.v[i] = v[first + i];
    }
  }
  void store(std::int64_t first, std::int64_t count, const MomentBuffers& from,
             const std::uint32_t* random) const {
    for (std::int64_t i = 0; i < count; ++i) {
      m[first + i].bits = rounded_to_bf16(from.m[i], random[i] & 0xffff);
      v[first + i].bits = rounded_to_bf16(from.v[i], random[i] >> 16);
    }
  }
};

struct CodedMoments {
  std::uint8_t *m, *v;
  float *m_scales, *v_scales;

  explicit CodedMoments(const OpContext& op)
      : m(op.out_data<std::uint8_t>(adamw::kMOut)),
        v(op.out_data<std::uint8_t>(adamw::kVOut)),
        m_scales(op.out_data<float>(adamw::kMScalesOut)),
        v_scales(op.out_data<float>(adamw::kVScalesOut)) {}

  void load(std::int64_t first, std::int64_t count, MomentBuffers& to) const {
    const float m_scale = m_scales[first / kMomentBlock], v_scale = v_scales[first / kMomentBlock];
    for (std::int64_t i = 0; i < count; ++i) {
      to.m[i] = FirstMoment::value(m[first + i], m_scale);
      to.v[i] = SecondMoment::value(v[first + i], v_scale);
    }
  }
  void store(std::int64_t first, std::int64_t count, const MomentBuffers& from,
             const std::uint32_t* random) const {
    float m_largest = 0, v_largest = 0;
#pragma omp simd reduction(max : m_largest, v_largest)
    for (std::int64_t i = 0; i < count; ++i) {
      m_largest = std::max(m_largest, std::abs(from.m[i]));
      v_largest = std::max(v_largest, from.v[i]);
    }
    const float m_scale = moment_scale(m_largest), v_scale = moment_scale(v_largest);
    m_scales[first / kMomentBlock] = m_scale;
    v_scales[first / kMomentBlock] = v_scale;
    const float m_inverse = inverse_moment_scale(m_scale),
                v_inverse = inverse_moment_scale(v_scale);
    write<FirstMoment, 0>(m + first, count, from.m, m_inverse, random);
    write<SecondMoment, 16>(v + first, count, from.v, v_inverse, random);
  }

 private:
  // The compiler makes vectors of one loop at a time.
  template <class Moment, int kShift>
  static void write(std::uint8_t* to, std::int64_t count, const float* from, float inverse_scale,
                    const std::uint32_t* random) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = Moment::code(from[i], inverse_scale, random[i] >> kShift & 0xffff);
  }
};

}  // namespace quintet::cpu
