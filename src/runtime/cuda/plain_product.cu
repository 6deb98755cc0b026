// Matrix products for the few shapes and alignments the library declines, and random operands to
// measure others on.
#include "runtime/cuda/check.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

// One thread an element of C.
template <class T, class C>
__global__ void product_kernel(Product p, const T* a, const T* b, const C* addend, C* c,
                               float alpha) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.m * p.n) return;
  const std::int64_t row = i / p.n, col = i % p.n;
  float sum = 0;
  for (std::int64_t k = 0; k < p.k; ++k) {
    sum += to_float(a[p.ta ? k * p.lda + row : row * p.lda + k]) *
           to_float(b[p.tb ? col * p.ldb + k : k * p.ldb + col]);
  }
  sum *= alpha;
  if (addend != nullptr) sum += to_float(addend[row * p.ldc + col]);
  c[row * p.ldc + col] = from_float<C>(sum);
}

template <class T>
__global__ void random_kernel(T* data, std::int64_t count, std::uint32_t seed) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    std::uint64_t x = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ull + seed;
    x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9ull;
    x ^= x >> 29;
    const float value = static_cast<float>(static_cast<std::int32_t>(x)) * 0x1p-31f;
    if constexpr (sizeof(T) == 1) {
      data[i] = T(value * 256);  // in the middle of the range
    } else {
      data[i] = from_float<T>(value);
    }
  }
}

}  // namespace

void plain_product(const Product& p, const Operands& o, cudaStream_t stream) {
  with_device_type(p.a, [&]<class T>(T) {
    with_device_type(p.out, [&]<class C>(C) {
      const auto blocks = static_cast<unsigned>(ceil_div(p.m * p.n, 256));
      product_kernel<<<blocks, 256, 0, stream>>>(
          p, static_cast<const T*>(o.a), static_cast<const T*>(o.b),
          static_cast<const C*>(o.addend), static_cast<C*>(o.c), o.alpha);
      QT_LAUNCHED();
    });
  });
}

void fill_random(void* data, std::int64_t count, DType dtype, std::uint64_t seed,
                 cudaStream_t stream) {
  const auto fill = [&]<class T>(T) {
    random_kernel<<<1024, 256, 0, stream>>>(static_cast<T*>(data), count,
                                            static_cast<std::uint32_t>(seed));
    QT_LAUNCHED();
  };
  is_fp8(dtype) ? with_fp8_type(dtype, fill) : with_device_type(dtype, fill);
}

}  // namespace quintet::cuda
