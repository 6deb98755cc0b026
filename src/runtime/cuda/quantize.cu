#include "program/ops/quantize.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/codes_tile.cuh"
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

// What is made of which matrix.
struct Operand : CodesOut {
  const dbf16* x;
};

// All threads of a block together. kCoded: what lies at m.x are codes already, to be turned.
template <class F, bool kCoded = false>
__device__ __forceinline__ void quantize_tile(const Operand& m, std::int64_t tile, float scale,
                                              std::uint32_t (&turned)[kTurnedWords]) {
  const TilePlace place;
  const std::int64_t row0 = tile / m.across() * kTileRows, col0 = tile % m.across() * kTileCols;
  const std::int64_t col = col0 + place.eight;
  const auto for_rows = [&](const auto& body) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int fourth = place.four + 16 * half;
      if (row0 + 4 * fourth < m.rows && col < m.cols) body(half, row0 + 4 * fourth, fourth);
    }
  };
  if constexpr (kCoded) {
    for_rows([&](int, std::int64_t row, int fourth) {
      turn_codes(reinterpret_cast<const std::uint8_t*>(m.x), m.cols, row, col, place.eight, fourth,
                 turned);
    });
  } else {
    uint4 values[2][4];
    for_rows([&](int half, std::int64_t row, int) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[half][i] = *reinterpret_cast<const uint4*>(m.x + (row + i) * m.cols + col);
    });
    for_rows([&](int half, std::int64_t row, int fourth) {
      put_codes<F>(values[half], m, row, col, place.eight, fourth, scale, turned);
    });
  }
  if (m.transposed == nullptr) return;
  __syncthreads();
  put_turned(m, row0, col0, turned);
  __syncthreads();
}

template <class F>
__global__ void __launch_bounds__(kTileThreads)
    quantize_kernel(const Operand m, const std::uint32_t* largest, const float* known,
                    float* unit_out) {
  __shared__ std::uint32_t turned[kTurnedWords];
  const float unit = known != nullptr ? *known : unit_of_slots<F>(largest);
  if (known == nullptr && blockIdx.x == 0 && threadIdx.x == 0) *unit_out = unit;
  const float scale = fp8_scale(unit);

  // From the end on: what was written or looked at last is still in the cache, and what the product
  // begins with will be.
  for (std::int64_t tile = m.tiles() - 1 - blockIdx.x; tile >= 0; tile -= gridDim.x)
    quantize_tile<F>(m, tile, scale, turned);
}

// --- Several matrices
// ---------------------------------------------------------------------------------------
//
// The work is a list of small pieces, each for one block: to look at some of a matrix for its
// largest magnitude, or to write a tile of its codes. A matrix is looked at right before its codes
// are written, so that as much of it as fits is still in the cache. From the end on, as above: the
// last matrix first, and each from its last tile. With a known unit and nothing to turn, codes are
// written as they lie, in pieces as those that are looked at: so a run of a matrix's elements is,
// too. Where only the unit is wanted, its one piece waits for it.

constexpr int kMatrices = quantize_weights::kDeviceMatrices;

// Packs of eight values that a thread looks at in one piece.
constexpr int kLooked = 4;
constexpr std::int64_t kLookedPacks = std::int64_t{kTileThreads} * kLooked;

// Pieces of the list that are of the same kind and of the same matrix.
struct Stretch {
  std::int32_t first;  // where it begins in the list
  std::int32_t from;   // which piece of the matrix that is
  std::int32_t matrix;
  bool looks;  // at the values; otherwise it writes codes
};

struct Matrices {
  Operand operands[kMatrices];
  const float* known[kMatrices];
  float* units[kMatrices];
  Stretch stretches[3 * kMatrices];
  std::int32_t stretch_count, pieces;
};
static_assert(sizeof(Matrices) <= 4096, "what a kernel's parameters may take");

__host__ __device__ std::int32_t looks_of(const Operand& m) {
  return static_cast<std::int32_t>((m.rows * m.cols / 8 + kLookedPacks - 1) / kLookedPacks);
}

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// With known units blocks take their pieces in turn. Otherwise each takes the first that no other
// has taken: a block that writes codes waits for others that still look at the matrix, and those
// have begun before it and wait for nobody. `state` is zero: see quantize_weights::kDeviceWords.
template <class F, bool kKnown, bool kCoded = false>
__global__ void __launch_bounds__(kTileThreads)
    quantize_weights_kernel(const __grid_constant__ Matrices work, std::uint32_t* state) {
  __shared__ std::uint32_t turned[kTurnedWords], of_warp[kTileThreads / 32];
  __shared__ std::uint32_t taken, most_of_all;
  constexpr int kNext = 0, kLargest = 1, kLookedAt = 1 + kMatrices;
  int stretch = 0, ready = -1;  // the matrix whose unit is at hand
  float unit = 1;
  std::int32_t piece = static_cast<std::int32_t>(blockIdx.x);
  for (;; piece += static_cast<std::int32_t>(gridDim.x)) {
    if constexpr (!kKnown) {
      __syncthreads();  // all are done with the last piece
      if (threadIdx.x == 0) taken = atomicAdd(state + kNext, 1u);
      __syncthreads();
      piece = static_cast<std::int32_t>(taken);
    }
    if (piece >= work.pieces) return;
    while (stretch + 1 < work.stretch_count && piece >= work.stretches[stretch + 1].first)
      ++stretch;
    const Stretch s = work.stretches[stretch];
    const Operand& m = work.operands[s.matrix];
    const std::int32_t part = s.from + piece - s.first;

    if (!kKnown && s.looks) {
      const auto* x = reinterpret_cast<const uint4*>(m.x);
      const std::int64_t packs = m.rows * m.cols / 8;
      std::int64_t i = part * kLookedPacks + threadIdx.x;
      std::uint32_t most = 0;
      if ((part + 1) * kLookedPacks <= packs) {
        uint4 values[kLooked];
#pragma unroll
        for (int j = 0; j < kLooked; ++j) values[j] = x[i + j * kTileThreads];
#pragma unroll
        for (int j = 0; j < kLooked; ++j) most = larger(most, values[j]);
      } else {
        for (; i < packs; i += kTileThreads) most = larger(most, x[i]);
      }
      most = __reduce_max_sync(0xffffffffu, max(most >> 16, most & 0xffffu));
      if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
      __syncthreads();
      if (threadIdx.x == 0) {
#pragma unroll
        for (int w = 0; w < kTileThreads / 32; ++w) most = max(most, of_warp[w]);
        atomicMax(state + kLargest + s.matrix, most << 16);
        __threadfence();  // whoever sees that this piece is done sees its largest, too
        atomicAdd(state + kLookedAt + s.matrix, 1u);
      }
      continue;
    }

    if (ready != s.matrix) {
      ready = s.matrix;
      if constexpr (kKnown) {
        unit = *work.known[ready];
      } else {
        if (threadIdx.x == 0) {
          const auto all = static_cast<std::uint32_t>(looks_of(m));
          while (load_acquire(state + kLookedAt + ready) < all) __nanosleep(32);
          most_of_all = load_acquire(state + kLargest + ready);
        }
        __syncthreads();
        unit = fp8_unit(most_of_all, F::kLargestExponent);
      }
    }
    if (part == 0 && threadIdx.x == 0 && work.units[s.matrix] != nullptr)
      *work.units[s.matrix] = unit;
    if (m.codes == nullptr && m.transposed == nullptr) continue;
    if (kKnown && m.transposed == nullptr) {
      const auto* x = reinterpret_cast<const uint4*>(m.x);
      auto* codes = reinterpret_cast<uint2*>(m.codes);
      const std::int64_t packs = m.rows * m.cols / 8, end = (part + 1) * kLookedPacks;
      const float scale = fp8_scale(unit);
      for (std::int64_t i = part * kLookedPacks + threadIdx.x; i < min(end, packs);
           i += kTileThreads) {
        const uint4 v = x[i];
        codes[i] = uint2{codes_of<F>(v.x, v.y, scale), codes_of<F>(v.z, v.w, scale)};
      }
    } else {
      quantize_tile<F, kCoded>(m, m.tiles() - 1 - part, fp8_scale(unit), turned);
    }
  }
}

// The list of pieces, for matrices of which operands are set. `ahead`: how many pieces of the next
// matrix are looked at before codes are written, so that the last to look at a matrix is hardly
// waited for.
void list_pieces(Matrices& work, int count, bool known, std::int32_t ahead) {
  work.stretch_count = work.pieces = 0;
  const auto add = [&](int matrix, bool looks, std::int32_t from, std::int32_t until) {
    if (from >= until) return;
    work.stretches[work.stretch_count++] = {work.pieces, from, matrix, looks};
    work.pieces += until - from;
  };
  const auto write = [&](int matrix) {
    const Operand& m = work.operands[matrix];
    const bool turns = m.transposed != nullptr, unit_alone = !turns && m.codes == nullptr;
    add(matrix, false, 0,
        unit_alone        ? 1
        : known && !turns ? looks_of(m)
                          : static_cast<std::int32_t>(m.tiles()));
  };
  for (int matrix = count - 1; matrix >= 0; --matrix) {
    if (known) {
      write(matrix);
      continue;
    }
    const std::int32_t looks = looks_of(work.operands[matrix]);
    const bool first = matrix == count - 1;
    const std::int32_t early = first ? 0 : std::min(ahead, looks);
    if (!first) {
      add(matrix, true, 0, early);
      write(matrix + 1);
    }
    add(matrix, true, early, looks);
  }
  if (!known) write(0);
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
  const Operand m{{op.out_data<std::uint8_t>(quantize::kCodes),
                   op.out_data<std::uint8_t>(quantize::kTransposed), rows, cols, cols},
                  op.in_data<dbf16>(quantize::kX)};
  with_fp8_type(op.attrs<QuantizeAttrs>().format, [&]<class F>(F) {
    quantize_kernel<F>
        <<<grid_of_tiles(m.tiles(), op.device().multiprocessors), kTileThreads, 0, op.stream()>>>(
            m, largest, known, op.out_data<float>(quantize::kUnit));
    QT_LAUNCHED();
  });
}

void quantize_weights(const OpContext& op) {
  namespace qw = quantize_weights;
  const DType dtype = op.in(qw::kX).dtype;
  QT_CHECK(dtype == DType::kBF16 || is_fp8(dtype), "eight-bit operands made of {}", name_of(dtype));
  const int count = qw::count(op.op);
  const bool known = op.has_in(qw::kKnownUnit);
  auto* state = known ? nullptr : op.scratch<std::uint32_t>();
  if (!known) {
    QT_CUDA(
        cudaMemsetAsync(state, 0, static_cast<std::size_t>(qw::device_bytes(count)), op.stream()));
  }
  for (int end = count; end > 0; end -= kMatrices) {
    const int begin = std::max(end - kMatrices, 0);
    Matrices work{};
    for (int i = begin; i < end; ++i) {
      const Shape& shape = op.in(qw::in(i, qw::kX)).shape;
      work.operands[i - begin] = {{op.out_data<std::uint8_t>(qw::out(i, quantize::kCodes)),
                                   op.out_data<std::uint8_t>(qw::out(i, quantize::kTransposed)),
                                   shape.rows(), shape.cols(), shape.cols()},
                                  op.in_data<dbf16>(qw::in(i, qw::kX))};
      work.known[i - begin] = op.in_data<float>(qw::in(i, qw::kKnownUnit));
      work.units[i - begin] = op.out_data<float>(qw::out(i, quantize::kUnit));
      QT_CHECK(is_wide(work.operands[i - begin].x), "{} does not lie on 16 bytes",
               op.in(qw::in(i, qw::kX)).name);
    }
    list_pieces(work, end - begin, known, 2 * op.device().multiprocessors);
    with_fp8_type(op.attrs<QuantizeAttrs>().format, [&]<class F>(F) {
      if (is_fp8(dtype)) {
        quantize_weights_kernel<F, true, true>
            <<<grid_of_tiles(work.pieces, op.device().multiprocessors), kTileThreads, 0,
               op.stream()>>>(work, nullptr);
      } else if (known) {
        quantize_weights_kernel<F, true><<<grid_of_tiles(work.pieces, op.device().multiprocessors),
                                           kTileThreads, 0, op.stream()>>>(work, nullptr);
      } else {
        // No more than a device could run at once: each goes on until nothing is left to take.
        const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(
            work.pieces, std::int64_t{op.device().multiprocessors} * (2048 / kTileThreads)));
        quantize_weights_kernel<F, false><<<blocks, kTileThreads, 0, op.stream()>>>(work, state);
        state += qw::kDeviceWords;
      }
      QT_LAUNCHED();
    });
  }
}

}  // namespace quintet::cuda
