// The feed-forward's non-linearities and their derivatives.
#pragma once

#include <type_traits>

namespace quintet::cuda {

// e^x: to the last bits where values are float32, the hardware's approximation where they will be
// rounded to bf16 anyway.
template <class T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return __expf(x);
  }
}

// GELU in the tanh form: 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
struct Gelu {
  static __device__ __forceinline__ float sigmoid(float x) {
    const float u = 0.7978845608f * x * (1.0f + 0.044715f * x * x);
    const float e = 1.0f + exponential<T>(-2.0f * u);
    if constexpr (std::is_same_v<T, float>) {
      return 1.0f / e;
    } else {
      return __fdividef(1.0f, e);
    }
  }
  static __device__ __forceinline__ void both(float x, float& value, float& derivative) {
    const float s = sigmoid(x);
    const float du = 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
    value = x * s;
    // s (1 - s) vanishes long before x^2 overflows.
    const float slope = s * (1.0f - s);
    derivative = s + (slope == 0 ? 0.0f : x * slope * 2.0f * du);
  }
};
template <class T>
struct Relu {
  static __device__ __forceinline__ void both(float x, float& value, float& derivative) {
    value = x > 0 ? x : 0.0f;
    derivative = x > 0 ? 1.0f : 0.0f;
  }
};

}  // namespace quintet::cuda
