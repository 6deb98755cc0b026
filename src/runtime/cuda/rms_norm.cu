#include "program/ops/rms_norm.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

// A row of d elements is held in the registers of a group of G threads, V packs of N elements each:
// a warp for narrow rows, the whole block for wide ones. Each row is read once.

namespace quintet::cuda {
namespace {

constexpr int kThreads = 256;

// The sum over a row's group of threads.
template <int G>
__device__ __forceinline__ float group_sum(float value) {
  if constexpr (G == 32) {
    return warp_sum(value);
  } else {
    __shared__ float shared[kThreads / 32];
    return block_sum<kThreads>(value, shared);
  }
}

template <class T, int N, int G, int V>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const T* x, const T* weight, T* y, float* rstd, std::int64_t rows, int d,
                   float epsilon) {
  const int lane = threadIdx.x % G;
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / G) + threadIdx.x / G;
  if (row >= rows) return;  // with G = kThreads there is a block for every row
  Pack<T, N> values[V];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int col = (k * G + lane) * N;
    if (col >= d) break;
    values[k] = load_pack<N>(x + row * d + col);
  }
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if ((k * G + lane) * N >= d) break;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float value = to_float(values[k].v[j]);
      sum += value * value;
    }
  }
  const float inverse = 1.0f / sqrtf(group_sum<G>(sum) / static_cast<float>(d) + epsilon);
  if (lane == 0) rstd[row] = inverse;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int col = (k * G + lane) * N;
    if (col >= d) break;
    float w[N];
    load_floats<N>(weight + col, w);
#pragma unroll
    for (int j = 0; j < N; ++j) w[j] *= to_float(values[k].v[j]) * inverse;
    store_floats<N>(y + row * d + col, w);
  }
}

// With n = x rstd and g = dy w:  dx = rstd (g - n mean(g n)),  dw = sum over rows of dy n. A block
// takes rows in a fixed pattern and leaves its part of dw in partial [blocks, d].
template <class T, int N, int G, int V>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const T* dy, const T* x, const T* weight, const float* rstd, const T* addend,
                    T* dx, float* partial, std::int64_t rows, int d) {
  constexpr int kRows = kThreads / G;
  const int lane = threadIdx.x % G, group = threadIdx.x / G;
  float dw[V][N] = {};
  for (std::int64_t first = std::int64_t{blockIdx.x} * kRows; first < rows;
       first += std::int64_t{gridDim.x} * kRows) {
    const std::int64_t row = first + group;
    const bool live = row < rows;
    Pack<T, N> gs[V], xs[V];
    const float inverse = live ? rstd[row] : 0.0f;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int col = (k * G + lane) * N;
      if (!live || col >= d) break;
      gs[k] = load_pack<N>(dy + row * d + col);
      xs[k] = load_pack<N>(x + row * d + col);
    }
    float dot = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int col = (k * G + lane) * N;
      if (!live || col >= d) break;
      float w[N];
      load_floats<N>(weight + col, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = to_float(gs[k].v[j]), n = to_float(xs[k].v[j]) * inverse;
        dot += g * w[j] * n;
        dw[k][j] += g * n;
      }
    }
    const float mean = group_sum<G>(dot) / static_cast<float>(d);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int col = (k * G + lane) * N;
      if (!live || col >= d) break;
      float w[N], base[N] = {};
      load_floats<N>(weight + col, w);
      if (addend != nullptr) load_floats<N>(addend + row * d + col, base);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float n = to_float(xs[k].v[j]) * inverse;
        base[j] += inverse * (to_float(gs[k].v[j]) * w[j] - n * mean);
      }
      // dx may lie where dy or the addend did: this thread has read what it overwrites.
      store_floats<N>(dx + row * d + col, base);
    }
  }
  extern __shared__ float sums[];  // [kRows, d] where a block holds several rows
  float* own = kRows > 1 ? sums + group * d : partial + std::int64_t{blockIdx.x} * d;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const int col = (k * G + lane) * N;
    if (col >= d) break;
#pragma unroll
    for (int j = 0; j < N; ++j) own[col + j] = dw[k][j];
  }
  if constexpr (kRows > 1) {
    __syncthreads();
    for (int col = threadIdx.x; col < d; col += kThreads) {
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum += sums[r * d + col];
      partial[std::int64_t{blockIdx.x} * d + col] = sum;
    }
  }
}

// dw[col] (+)= sum over blocks of partial[block][col]; 32 columns and 8 shares of the blocks at a
// time.
template <class G>
__global__ void weight_gradient_kernel(const float* partial, int blocks, int d, bool accumulate,
                                       G* dw) {
  __shared__ float shared[8][33];
  const int col = blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  if (col < d) {
    for (int b = threadIdx.y; b < blocks; b += 8) sum += partial[std::int64_t{b} * d + col];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= d) return;
  float total = accumulate ? to_float(dw[col]) : 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) total += shared[i][threadIdx.x];
  dw[col] = from_float<G>(total);
}

// Calls launch.template operator()<N, G, V>() with a shape that holds rows of d elements.
template <class T, class Launch>
void with_row_shape(std::int64_t d, bool wide, const Launch& launch) {
  const std::int64_t packs = wide ? d / kWide<T> : d;
  if (wide && packs <= 64) return launch.template operator()<kWide<T>, 32, 2>();
  if (wide && packs <= 96) return launch.template operator()<kWide<T>, 32, 3>();
  if (wide && packs <= 128) return launch.template operator()<kWide<T>, 32, 4>();
  if (wide && packs <= 512) return launch.template operator()<kWide<T>, kThreads, 2>();
  if (wide && packs <= 2048) return launch.template operator()<kWide<T>, kThreads, 8>();
  QT_CHECK(packs <= 16 * kThreads, "rows of {} elements are too long for this kernel", d);
  return launch.template operator()<1, kThreads, 16>();
}

}  // namespace

void rms_norm(const OpContext& op) {
  const Shape& shape = op.in(rms_norm::kX).shape;
  const std::int64_t rows = shape.rows(), d = shape.cols();
  with_device_type(op.in(rms_norm::kX).dtype, [&]<class T>(T) {
    const auto *x = op.in_data<T>(rms_norm::kX), *weight = op.in_data<T>(rms_norm::kWeight);
    auto* y = op.out_data<T>(rms_norm::kY);
    const bool wide = d % kWide<T> == 0 && is_wide(x) && is_wide(weight) && is_wide(y);
    with_row_shape<T>(d, wide, [&]<int N, int G, int V>() {
      const auto blocks = static_cast<unsigned>(ceil_div(rows, kThreads / G));
      forward_kernel<T, N, G, V><<<blocks, kThreads, 0, op.stream()>>>(
          x, weight, y, op.out_data<float>(rms_norm::kRstd), rows, static_cast<int>(d),
          op.attrs<RmsNormAttrs>().epsilon);
      QT_LAUNCHED();
    });
  });
}

void rms_norm_backward(const OpContext& op) {
  using namespace rms_norm_backward;
  const Shape& shape = op.in(kX).shape;
  const std::int64_t rows = shape.rows(), d = shape.cols();
  const std::int64_t blocks = device_blocks(rows);
  auto* partial = op.scratch<float>();
  with_device_type(op.in(kX).dtype, [&]<class T>(T) {
    const auto *dy = op.in_data<T>(kDy), *x = op.in_data<T>(kX), *weight = op.in_data<T>(kWeight);
    const auto* addend = op.in_data<T>(kAddend);
    auto* dx = op.out_data<T>(kDx);
    const bool wide = d % kWide<T> == 0 && is_wide(dy) && is_wide(x) && is_wide(weight) &&
                      is_wide(addend) && is_wide(dx);
    with_row_shape<T>(d, wide, [&]<int N, int G, int V>() {
      const std::size_t shared = G == kThreads ? 0 : sizeof(float) * (kThreads / G) * d;
      backward_kernel<T, N, G, V><<<static_cast<unsigned>(blocks), kThreads, shared, op.stream()>>>(
          dy, x, weight, op.in_data<float>(kRstd), addend, dx, partial, rows, static_cast<int>(d));
      QT_LAUNCHED();
    });
  });
  with_device_type(op.out(kDWeight).dtype, [&]<class G>(G) {
    weight_gradient_kernel<<<static_cast<unsigned>(ceil_div(d, 32)), dim3(32, 8), 0, op.stream()>>>(
        partial, static_cast<int>(blocks), static_cast<int>(d), op.has_in(kDWeightAddend),
        op.out_data<G>(kDWeight));
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
