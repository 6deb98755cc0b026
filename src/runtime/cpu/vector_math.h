// Elementary functions that compilers turn into vector code. The C library's are accurate to the
// last bit and called one element at a time; softmax and GELU want neither.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/bf16.h"

namespace quintet::cpu {

// e^x within 2 ulp for x in [-87, 88]; clamped outside.
inline float fast_exp(float x) {
  x = std::min(std::max(x, -87.3f), 88.7f);
  // x = n ln 2 + r with |r| <= ln 2 / 2; adding 1.5 * 2^23 rounds to an integer in the low bits.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + exponent);
}

// GELU in the tanh form: 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
inline float gelu_sigmoid(float x) {
  const float u = 0.7978845608f * x * (1.0f + 0.044715f * x * x);
  return 1.0f / (1.0f + fast_exp(-2.0f * u));
}
inline float gelu_tanh(float x) {
  return x * gelu_sigmoid(x);
}
inline float gelu_tanh_derivative(float x) {
  const float s = gelu_sigmoid(x);
  const float du = 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
  return s + x * s * (1.0f - s) * 2.0f * du;
}

template <class T>
void widen(const T* from, float* to, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
template <class T>
void narrow(const float* from, T* to, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

}  // namespace quintet::cpu
