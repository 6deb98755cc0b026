#include "program/ops/dropout.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/philox.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

// N divides `cols`: a pack lies in one row.
template <class T, int N>
__global__ void dropout_kernel(const T* x, const T* addend, T* y, std::int64_t count,
                               std::int64_t cols, GlobalIndex index, DropoutMask mask,
                               const std::int64_t* step) {
  MaskReader reader(mask, *step);
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x * N;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N; i < count;
       i += stride) {
    const std::int64_t row = i / cols, col = i - row * cols;
    const std::int64_t first = (index.row_offset + row) * index.cols + index.col_offset + col;
    float value[N], base[N] = {};
    load_floats<N>(x + i, value);
    if (addend != nullptr) load_floats<N>(addend + i, base);
#pragma unroll
    for (int j = 0; j < N; ++j) value[j] = base[j] + value[j] * reader.factor(first + j);
    store_floats<N>(y + i, value);
  }
}

}  // namespace

void dropout(const OpContext& op) {
  const auto& attrs = op.attrs<DropoutAttrs>();
  const Shape& shape = op.in(dropout::kX).shape;
  const DropoutMask mask(attrs.rate, attrs.seed, attrs.site);
  const auto* step = op.in_data<std::int64_t>(dropout::kStep);
  with_device_type(op.in(dropout::kX).dtype, [&]<class T>(T) {
    const auto* x = op.in_data<T>(dropout::kX);
    const auto* addend = op.in_data<T>(dropout::kAddend);
    auto* y = op.out_data<T>(dropout::kY);  // may be x or the addend itself
    const bool wide = shape.cols() % kWide<T> == 0 && is_wide(x) && is_wide(y) && is_wide(addend);
    const unsigned grid =
        grid_for(shape.numel() / (wide ? kWide<T> : 1), 256, op.device().multiprocessors);
    const auto kernel = wide ? dropout_kernel<T, kWide<T>> : dropout_kernel<T, 1>;
    kernel<<<grid, 256, 0, op.stream()>>>(x, addend, y, shape.numel(), shape.cols(), attrs.index,
                                          mask, step);
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
