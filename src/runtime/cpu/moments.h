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
  std::uint32_t random[kMomentBlock];

  // The random bits of an op's elements from `first` on. Neighbours of a weight are drawn together.
  void draw(const MomentPlace& place, std::int64_t step, std::int64_t first, std::int64_t count) {
    if (place.apart != 0) {
      MomentWords words(place, step);
      for (std::int64_t i = 0; i < count; ++i) random[i] = words.at(place.element(first + i));
      return;
    }
    constexpr std::size_t kBlocks = kMomentBlock / 4 + 1;
    const auto element = static_cast<std::uint64_t>(place.element(first));
    const std::uint64_t stream = place.stream(step);
    std::uint32_t words[4][kBlocks];
    for (std::size_t b = 0; b < kBlocks; ++b) {
      const auto block = philox(place.seed, stream, element / 4 + b);
      for (std::size_t word = 0; word < 4; ++word) words[word][b] = block[word];
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(element % 4) + static_cast<std::size_t>(i);
      random[i] = words[at % 4][at / 4];
    }
  }
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
  void store(std::int64_t first, std::int64_t count, const MomentBuffers& from) const {
    for (std::int64_t i = 0; i < count; ++i) {
      m[first + i].bits = rounded_to_bf16(from.m[i], from.random[i] & 0xffff);
      v[first + i].bits = rounded_to_bf16(from.v[i], from.random[i] >> 16);
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
  void store(std::int64_t first, std::int64_t count, const MomentBuffers& from) const {
    float m_largest = 0, v_largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      m_largest = std::max(m_largest, std::abs(from.m[i]));
      v_largest = std::max(v_largest, from.v[i]);
    }
    const float m_scale = moment_scale(m_largest), v_scale = moment_scale(v_largest);
    m_scales[first / kMomentBlock] = m_scale;
    v_scales[first / kMomentBlock] = v_scale;
    const float m_inverse = inverse_moment_scale(m_scale),
                v_inverse = inverse_moment_scale(v_scale);
    for (std::int64_t i = 0; i < count; ++i) {
      m[first + i] = FirstMoment::code(from.m[i], m_inverse, from.random[i] & 0xffff);
      v[first + i] = SecondMoment::code(from.v[i], v_inverse, from.random[i] >> 16);
    }
  }
};

}  // namespace quintet::cpu
