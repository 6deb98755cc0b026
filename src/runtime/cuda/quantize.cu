#include <cuda_fp8.h>

#include "program/ops/quantize.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/largest.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {
namespace {

__device__ __forceinline__ std::uint32_t larger(std::uint32_t most, uint4 x) {
  return larger_pair(larger_pair(larger_pair(larger_pair(most, x.x), x.y), x.z), x.w);
}

constexpr int kScanThreads = 512, kScanned = 4;

// Each block's largest, as the bits of a float32.
__global__ void __launch_bounds__(kScanThreads)
    largest_kernel(const uint4* x, std::int64_t packs, std::uint32_t* largest) {
  std::uint32_t most = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * kScanThreads;
  std::int64_t i = std::int64_t{blockIdx.x} * kScanThreads + threadIdx.x;
  for (; i + (kScanned - 1) * stride < packs; i += kScanned * stride) {
    uint4 values[kScanned];
#pragma unroll
    for (int j = 0; j < kScanned; ++j) values[j] = x[i + j * stride];
#pragma unroll
    for (int j = 0; j < kScanned; ++j) most = larger(most, values[j]);
  }
  for (; i < packs; i += stride) most = larger(most, x[i]);
  most = __reduce_max_sync(0xffffffffu, max(most >> 16, most & 0xffffu));
  __shared__ std::uint32_t of_warp[kScanThreads / 32];
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  most = threadIdx.x < kScanThreads / 32 ? of_warp[threadIdx.x] : 0;
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x == 0) largest[blockIdx.x] = most << 16;
}

// A tile is turned in shared memory: each thread has four rows of eight columns.
constexpr int kTileRows = 128, kTileCols = 64, kThreads = 256;
static_assert(kTileRows * kTileCols == kThreads * 32);

// Four columns of four rows of codes, as columns.
__device__ __forceinline__ void turn(const std::uint32_t (&row)[4], std::uint32_t (&column)[4]) {
  const std::uint32_t a = __byte_perm(row[0], row[1], 0x5140),
                      b = __byte_perm(row[2], row[3], 0x5140),
                      c = __byte_perm(row[0], row[1], 0x7362),
                      d = __byte_perm(row[2], row[3], 0x7362);
  column[0] = __byte_perm(a, b, 0x5410);
  column[1] = __byte_perm(a, b, 0x7632);
  column[2] = __byte_perm(c, d, 0x5410);
  column[3] = __byte_perm(c, d, 0x7632);
}

template <class F>
__device__ __forceinline__ std::uint32_t codes_of(std::uint32_t low, std::uint32_t high,
                                                  float scale) {
  constexpr __nv_fp8_interpretation_t kFormat = std::is_same_v<F, e4m3> ? __NV_E4M3 : __NV_E5M2;
  const auto pair = [&](std::uint32_t two) {
    const float2 values{__uint_as_float(two << 16) * scale,
                        __uint_as_float(two & 0xffff0000u) * scale};
    return static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, kFormat));
  };
  return pair(low) | pair(high) << 16;
}

template <class F>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const dbf16* x, const std::uint32_t* largest, const float* known,
                    std::uint8_t* codes, std::uint8_t* transposed, float* unit_out,
                    std::int64_t rows, std::int64_t cols) {
  static_assert(quantize::kSlots == kThreads);
  constexpr int kStride = kTileRows / 4 + 1;  // words of a column, and one against bank conflicts
  __shared__ std::uint32_t turned[kTileCols * kStride], of_warp[kThreads / 32];

  float unit;
  if (known != nullptr) {
    unit = *known;
  } else {
    const std::uint32_t mine = __reduce_max_sync(0xffffffffu, largest[threadIdx.x]);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    std::uint32_t most = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) most = max(most, of_warp[w]);
    unit = fp8_unit(most, F::kLargestExponent);
    if (blockIdx.x == 0 && threadIdx.x == 0) *unit_out = unit;
  }
  const float scale = fp8_scale(unit);

  const std::int64_t across = (cols + kTileCols - 1) / kTileCols;
  const std::int64_t tiles = across * ((rows + kTileRows - 1) / kTileRows);
  const int eight = threadIdx.x % 8 * 8, four = threadIdx.x / 8;
  // From the end on: what was written or looked at last is still in the cache, and what the product
  // begins with will be.
  for (std::int64_t tile = tiles - 1 - blockIdx.x; tile >= 0; tile -= gridDim.x) {
    const std::int64_t row0 = tile / across * kTileRows, col0 = tile % across * kTileCols;
    const std::int64_t row = row0 + 4 * four, col = col0 + eight;
    if (row < rows && col < cols) {
      uint4 values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[i] = *reinterpret_cast<const uint4*>(x + (row + i) * cols + col);
      std::uint32_t low[4], high[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        low[i] = codes_of<F>(values[i].x, values[i].y, scale);
        high[i] = codes_of<F>(values[i].z, values[i].w, scale);
      }
      if (codes != nullptr) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          *reinterpret_cast<uint2*>(codes + (row + i) * cols + col) = uint2{low[i], high[i]};
      }
      if (transposed != nullptr) {
        std::uint32_t column[4];
        turn(low, column);
#pragma unroll
        for (int i = 0; i < 4; ++i) turned[(eight + i) * kStride + four] = column[i];
        turn(high, column);
#pragma unroll
        for (int i = 0; i < 4; ++i) turned[(eight + 4 + i) * kStride + four] = column[i];
      }
    }
    if (transposed == nullptr) continue;
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c = threadIdx.x / 8 + 32 * half, sixteen = threadIdx.x % 8 * 16;
      if (col0 + c < cols && row0 + sixteen < rows) {
        const std::uint32_t* from = turned + c * kStride + sixteen / 4;
        *reinterpret_cast<uint4*>(transposed + (col0 + c) * rows + row0 + sixteen) =
            uint4{from[0], from[1], from[2], from[3]};
      }
    }
    __syncthreads();
  }
}

}  // namespace

void quantize(const OpContext& op) {
  const Tensor& x = op.in(quantize::kX);
  QT_CHECK(x.dtype == DType::kBF16, "eight-bit operands made of {}", name_of(x.dtype));
  const std::int64_t rows = x.shape.rows(), cols = x.shape.cols();
  const auto* known = op.in_data<float>(quantize::kKnownUnit);
  const auto* largest = op.in_data<std::uint32_t>(quantize::kLargest);
  if (known == nullptr && largest == nullptr) {
    auto* found = op.scratch<std::uint32_t>();
    largest = found;
    largest_kernel<<<static_cast<unsigned>(quantize::kSlots), kScanThreads, 0, op.stream()>>>(
        op.in_data<uint4>(quantize::kX), rows * cols / 8, found);
    QT_LAUNCHED();
  }
  const std::int64_t tiles = ceil_div(rows, kTileRows) * ceil_div(cols, kTileCols);
  const auto grid = static_cast<unsigned>(
      std::min<std::int64_t>(tiles, std::int64_t{op.device().multiprocessors} * 8 * 4));
  with_fp8_type(op.attrs<QuantizeAttrs>().format, [&]<class F>(F) {
    quantize_kernel<F>
        <<<grid, kThreads, 0, op.stream()>>>(op.in_data<dbf16>(quantize::kX), largest, known,
                                             op.out_data<std::uint8_t>(quantize::kCodes),
                                             op.out_data<std::uint8_t>(quantize::kTransposed),
                                             op.out_data<float>(quantize::kUnit), rows, cols);
    QT_LAUNCHED();
  });
}

}  // namespace quintet::cuda
