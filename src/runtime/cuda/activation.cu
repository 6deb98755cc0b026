#include "program/ops/activation.h"
#include "runtime/cuda/activation_codes.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/largest.cuh"
#include "runtime/cuda/nonlinearity.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

// The row of a pack. A 64-bit division would cost as much as the rest of the kernel.
__device__ __forceinline__ std::int64_t row_of(std::int64_t pack, std::int64_t packs) {
  return static_cast<std::uint32_t>(pack) / static_cast<std::uint32_t>(packs);
}

// Packs of y [rows, f]; h is [rows, 2f] where gated. N divides f.
template <class T, int N, template <class> class F, bool kGated>
__global__ void forward_kernel(const T* h, T* y, Largest largest, std::int64_t rows,
                               std::int64_t f) {
  const std::int64_t packs = f / N, count = rows * packs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t row = row_of(i, packs), col = (i - row * packs) * N;
    const T* from = h + row * (kGated ? 2 * f : f) + col;
    float x[N], gate[N];
    load_floats<N>(from, x);
    if constexpr (kGated) load_floats<N>(from + f, gate);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float value, derivative;
      F<T>::both(x[j], value, derivative);
      x[j] = kGated ? value * gate[j] : value;
    }
    largest.template store<N>(y + i * N, x);
  }
  largest.say();
}

template <class T, int N, template <class> class F, bool kGated>
__global__ void backward_kernel(const T* dy, const T* h, T* dh, Largest largest, std::int64_t rows,
                                std::int64_t f) {
  const std::int64_t packs = f / N, count = rows * packs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const std::int64_t row = row_of(i, packs), col = (i - row * packs) * N;
    const std::int64_t at = row * (kGated ? 2 * f : f) + col;
    float x[N], gate[N], g[N];
    load_floats<N>(h + at, x);
    if constexpr (kGated) load_floats<N>(h + at + f, gate);
    load_floats<N>(dy + i * N, g);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float value, derivative;
      F<T>::both(x[j], value, derivative);
      x[j] = g[j] * derivative * (kGated ? gate[j] : 1.0f);
      if constexpr (kGated) gate[j] = g[j] * value;
    }
    // May be where h was: this thread has read its elements.
    largest.template store<N>(dh + at, x);
    if constexpr (kGated) largest.template store<N>(dh + at + f, gate);
  }
  largest.say();
}

// Calls launch.template operator()<T, N, F, gated>() for the op's dtype, widths and attributes.
template <class Launch>
void dispatch(const ActivationAttrs& attrs, DType dtype, bool wide_bf16, bool wide_f32,
              const Launch& launch) {
  with_device_type(dtype, [&]<class T>(T) {
    const auto with_width = [&]<int N>() {
      if (attrs.function == Nonlinearity::kGeluTanh) {
        attrs.gated ? launch.template operator()<T, N, Gelu, true>()
                    : launch.template operator()<T, N, Gelu, false>();
      } else {
        attrs.gated ? launch.template operator()<T, N, Relu, true>()
                    : launch.template operator()<T, N, Relu, false>();
      }
    };
    (dtype == DType::kF32 ? wide_f32 : wide_bf16) ? with_width.template operator()<kWide<T>>()
                                                  : with_width.template operator()<1>();
  });
}

}  // namespace

void activation(const OpContext& op) {
  if (quantize::elements_rounded(op) > 0) return activation_codes(op);
  const Shape& shape = op.out(activation::kY).shape;
  const std::int64_t rows = shape.rows(), f = shape.cols();
  QT_CHECK(rows * f < (std::int64_t{1} << 32), "{} elements in one activation", rows * f);
  const Largest largest(empty_slots(op, activation::kLargest, op.in(activation::kH).dtype));
  dispatch(
      op.attrs<ActivationAttrs>(), op.in(activation::kH).dtype, f % 8 == 0, f % 4 == 0,
      [&]<class T, int N, template <class> class F, bool kGated>() {
        forward_kernel<T, N, F, kGated>
            <<<grid_for(rows * f / N, 256, op.device().multiprocessors), 256, 0, op.stream()>>>(
                op.in_data<T>(activation::kH), op.out_data<T>(activation::kY), largest, rows, f);
        QT_LAUNCHED();
      });
}

void activation_backward(const OpContext& op) {
  if (quantize::elements_rounded(op) > 0) return activation_codes(op);
  const Shape& shape = op.in(activation_backward::kDy).shape;
  const std::int64_t rows = shape.rows(), f = shape.cols();
  QT_CHECK(rows * f < (std::int64_t{1} << 32), "{} elements in one activation", rows * f);
  const Largest largest(
      empty_slots(op, activation_backward::kLargest, op.in(activation_backward::kH).dtype));
  dispatch(
      op.attrs<ActivationAttrs>(), op.in(activation_backward::kH).dtype, f % 8 == 0, f % 4 == 0,
      [&]<class T, int N, template <class> class F, bool kGated>() {
        backward_kernel<T, N, F, kGated>
            <<<grid_for(rows * f / N, 256, op.device().multiprocessors), 256, 0, op.stream()>>>(
                op.in_data<T>(activation_backward::kDy), op.in_data<T>(activation_backward::kH),
                op.out_data<T>(activation_backward::kDh), largest, rows, f);
        QT_LAUNCHED();
      });
}

}  // namespace quintet::cuda
