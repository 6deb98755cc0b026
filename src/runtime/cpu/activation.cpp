#include "program/ops/activation.h"

#include "base/dtype.h"
#include "base/parallel_for.h"
#include "runtime/cpu/codes.h"
#include "runtime/cpu/kernel.h"
#include "runtime/cpu/vector_math.h"

namespace quintet::cpu {
namespace {

struct Gelu {
  static float value(float x) { return gelu_tanh(x); }
  static float derivative(float x) { return gelu_tanh_derivative(x); }
};
struct Relu {
  static float value(float x) { return x > 0 ? x : 0.0f; }
  static float derivative(float x) { return x > 0 ? 1.0f : 0.0f; }
};

template <class T, class F, bool kGated>
void forward(const OpContext& op) {
  const auto* h = op.in_data<T>(activation::kH);
  auto* y = result_of<T>(op);
  const Shape& shape = op.in(activation::kH).shape;
  const std::int64_t width = shape.cols(), f = kGated ? width / 2 : width;
  parallel_for(shape.rows(), row_grain(f), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* hr = h + r * width;
      T* yr = y + r * f;
#pragma omp simd
      for (std::int64_t i = 0; i < f; ++i) {
        const float value = F::value(static_cast<float>(hr[i]));
        yr[i] = static_cast<T>(kGated ? value * static_cast<float>(hr[f + i]) : value);
      }
    }
  });
}

template <class T, class F, bool kGated>
void backward(const OpContext& op) {
  const auto* dy = op.in_data<T>(activation_backward::kDy);
  const auto* h = op.in_data<T>(activation_backward::kH);
  auto* dh = result_of<T>(op);  // may be h itself
  const Shape& shape = op.in(activation_backward::kDy).shape;
  const std::int64_t f = shape.cols(), width = kGated ? 2 * f : f;
  parallel_for(shape.rows(), row_grain(f), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T *hr = h + r * width, *dyr = dy + r * f;
      T* dhr = dh + r * width;
#pragma omp simd
      for (std::int64_t i = 0; i < f; ++i) {
        const float x = static_cast<float>(hr[i]), g = static_cast<float>(dyr[i]);
        if constexpr (kGated) {
          const float gate = static_cast<float>(hr[f + i]);
          dhr[i] = static_cast<T>(g * gate * F::derivative(x));
          dhr[f + i] = static_cast<T>(g * F::value(x));
        } else {
          dhr[i] = static_cast<T>(g * F::derivative(x));
        }
      }
    }
  });
}

// Calls body.template operator()<T, F, gated>() for the op's dtype and attributes.
template <class Body>
void dispatch(const OpContext& op, DType dtype, const Body& body) {
  const auto& attrs = op.attrs<ActivationAttrs>();
  with_float_type(dtype, [&]<class T>(T) {
    if (attrs.function == Nonlinearity::kGeluTanh) {
      attrs.gated ? body.template operator()<T, Gelu, true>()
                  : body.template operator()<T, Gelu, false>();
    } else {
      attrs.gated ? body.template operator()<T, Relu, true>()
                  : body.template operator()<T, Relu, false>();
    }
  });
}

}  // namespace

void activation(const OpContext& op) {
  dispatch(op, op.in(activation::kH).dtype, [&]<class T, class F, bool kGated>() {
    forward<T, F, kGated>(op);
    leave_codes_or_largest<T>(op);
  });
}

void activation_backward(const OpContext& op) {
  dispatch(op, op.in(activation_backward::kH).dtype, [&]<class T, class F, bool kGated>() {
    backward<T, F, kGated>(op);
    leave_codes_or_largest<T>(op);
  });
}

}  // namespace quintet::cpu
