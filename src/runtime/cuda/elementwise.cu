// add, zero, copy, count_labels: kernels too small for a file each.
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

template <class T>
struct Add {
  const T *a, *b;
  T* c;  // may be a or b itself
  template <int N>
  __device__ void operator()(std::int64_t i) const {
    float x[N], y[N];
    load_floats<N>(a + i, x);
    load_floats<N>(b + i, y);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] += y[j];
    store_floats<N>(c + i, x);
  }
};

// One block: labels are few beside everything else.
__global__ void count_kernel(const std::int32_t* labels, std::int64_t size, float* count) {
  __shared__ int shared[32];
  int mine = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += 1024) mine += labels[i] >= 0 ? 1 : 0;
  const int total = block_sum<1024>(mine, shared);
  if (threadIdx.x == 0) *count = static_cast<float>(total);
}

}  // namespace

void add(const OpContext& op) {
  with_device_type(op.in(0).dtype, [&]<class T>(T) {
    const Add<T> body{op.in_data<T>(0), op.in_data<T>(1), op.out_data<T>(0)};
    const std::int64_t count = op.in(0).shape.numel();
    const bool wide = is_wide(body.a) && is_wide(body.b) && is_wide(body.c);
    const unsigned grid = grid_for(count / (wide ? kWide<T> : 1), 256, op.device().multiprocessors);
    if (wide) {
      for_packs<kWide<T>><<<grid, 256, 0, op.stream()>>>(count, body);
    } else {
      for_packs<1><<<grid, 256, 0, op.stream()>>>(count, body);
    }
    QT_LAUNCHED();
  });
}

void zero(const OpContext& op) {
  QT_CUDA(cudaMemsetAsync(op.out_data<std::byte>(0), 0, static_cast<std::size_t>(op.out(0).bytes()),
                          op.stream()));
}

// Between the device and pinned host memory; the driver knows which is which.
void copy(const OpContext& op) {
  QT_CUDA(cudaMemcpyAsync(op.out_data<std::byte>(0), op.in_data<std::byte>(0),
                          static_cast<std::size_t>(op.in(0).bytes()), cudaMemcpyDefault,
                          op.stream()));
}

void count_labels(const OpContext& op) {
  count_kernel<<<1, 1024, 0, op.stream()>>>(op.in_data<std::int32_t>(0), op.in(0).shape.numel(),
                                            op.out_data<float>(0));
  QT_LAUNCHED();
}

}  // namespace quintet::cuda
