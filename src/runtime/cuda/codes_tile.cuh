// Eight-bit codes of tiles of a bf16 matrix, as they are and transposed: what quantize and ops that
// leave the codes of their results have in common (program/ops/quantize.h).
//
// A tile is turned in shared memory: each thread has twice four rows of eight columns.
#pragma once

#include <algorithm>

#include <cuda_fp8.h>

#include "base/fp8.h"
#include "program/ops/quantize.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/largest.cuh"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda {

inline constexpr int kTileRows = 128, kTileCols = 128, kTileThreads = 256;
static_assert(kTileRows * kTileCols == kTileThreads * 64);

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

// Where codes of a [rows, cols] matrix go, or of some columns of one with rows of `ld`; either may
// be null.
struct CodesOut {
  std::uint8_t *codes, *transposed;
  std::int64_t rows, cols, ld;

  __host__ __device__ std::int64_t across() const { return ceil_div(cols, kTileCols); }
  __host__ __device__ std::int64_t tiles() const { return across() * ceil_div(rows, kTileRows); }
};

// Words of a column of a tile, and one against bank conflicts; against those that are left, columns
// begin at different words of theirs.
inline constexpr int kTurnedStride = kTileRows / 4 + 1;
inline constexpr int kTurnedWords = kTileCols * kTurnedStride;
__device__ __forceinline__ int turned_at(int col, int four) {
  return col * kTurnedStride + (four + 2 * (col / 32)) % (kTileRows / 4);
}

// A thread's place in a tile: eight columns from `eight` on, and of each half of the tile four rows
// from 4 (four + 16 half) on.
struct TilePlace {
  int eight, four;
  __device__ TilePlace() : eight(threadIdx.x % 16 * 8), four(threadIdx.x / 16) {}
};

// Leaves the codes of four rows of eight columns turned, for put_turned.
__device__ __forceinline__ void leave_turned(const std::uint32_t (&low)[4],
                                             const std::uint32_t (&high)[4], int eight, int fourth,
                                             std::uint32_t (&turned)[kTurnedWords]) {
  std::uint32_t column[4];
  turn(low, column);
#pragma unroll
  for (int i = 0; i < 4; ++i) turned[turned_at(eight + i, fourth)] = column[i];
  turn(high, column);
#pragma unroll
  for (int i = 0; i < 4; ++i) turned[turned_at(eight + 4 + i, fourth)] = column[i];
}

// Eight values as they would lie in memory, shown to `largest`.
__device__ __forceinline__ uint4 bits_of(const float (&values)[8], Largest& largest) {
  Pack<dbf16, 8> pack;
#pragma unroll
  for (int i = 0; i < 8; ++i) pack.v[i] = from_float<dbf16>(values[i]);
  largest.see<8>(pack);
  return *reinterpret_cast<const uint4*>(&pack);
}

// Writes the codes of four rows of eight bf16 values, and leaves them turned. `fourth`: of the
// tile's groups of four rows; (row, col): of the first value in the matrix.
template <class F>
__device__ __forceinline__ void put_codes(const uint4 (&values)[4], const CodesOut& out,
                                          std::int64_t row, std::int64_t col, int eight, int fourth,
                                          float scale, std::uint32_t (&turned)[kTurnedWords]) {
  std::uint32_t low[4], high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    low[i] = codes_of<F>(values[i].x, values[i].y, scale);
    high[i] = codes_of<F>(values[i].z, values[i].w, scale);
  }
  if (out.codes != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<uint2*>(out.codes + (row + i) * out.ld + col) = uint2{low[i], high[i]};
  }
  if (out.transposed != nullptr) leave_turned(low, high, eight, fourth, turned);
}
// Leaves codes turned that are there already, in rows of `ld`.
__device__ __forceinline__ void turn_codes(const std::uint8_t* codes, std::int64_t ld,
                                           std::int64_t row, std::int64_t col, int eight,
                                           int fourth, std::uint32_t (&turned)[kTurnedWords]) {
  std::uint32_t low[4], high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 eight_codes = *reinterpret_cast<const uint2*>(codes + (row + i) * ld + col);
    low[i] = eight_codes.x;
    high[i] = eight_codes.y;
  }
  leave_turned(low, high, eight, fourth, turned);
}

// All threads of a block together, when all have left their codes turned.
__device__ __forceinline__ void put_turned(const CodesOut& out, std::int64_t row0,
                                           std::int64_t col0,
                                           const std::uint32_t (&turned)[kTurnedWords]) {
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const int c = threadIdx.x / 8 + 32 * quarter, sixteen = threadIdx.x % 8 * 16;
    if (col0 + c < out.cols && row0 + sixteen < out.rows) {
      uint4 codes;
      codes.x = turned[turned_at(c, sixteen / 4)];
      codes.y = turned[turned_at(c, sixteen / 4 + 1)];
      codes.z = turned[turned_at(c, sixteen / 4 + 2)];
      codes.w = turned[turned_at(c, sixteen / 4 + 3)];
      *reinterpret_cast<uint4*>(out.transposed + (col0 + c) * out.rows + row0 + sixteen) = codes;
    }
  }
}

// The unit of a tensor whose largest magnitude is in the slots; for all threads of a block.
template <class F>
__device__ __forceinline__ float unit_of_slots(const std::uint32_t* slots) {
  static_assert(quantize::kSlots == kTileThreads);
  __shared__ std::uint32_t of_warp[kTileThreads / 32];
  const std::uint32_t mine = __reduce_max_sync(0xffffffffu, slots[threadIdx.x]);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  std::uint32_t most = 0;
#pragma unroll
  for (int w = 0; w < kTileThreads / 32; ++w) most = max(most, of_warp[w]);
  return fp8_unit(most, F::kLargestExponent);
}

// The unit of the codes that an op leaves of its own result is known when all of the result is, and
// that is never in memory. So codes are written with the unit that the op had the last time; a
// second launch then looks at what was largest and ends, if that was the unit, as it is but when
// training moves a largest magnitude over a power of two. Else it writes the codes again. The bits
// are the same either way.
struct Units {
  std::uint32_t* slots;  // largest magnitudes, empty at the first launch
  std::uint32_t* guess;  // quantize::kGuessWords
  float* unit;
};

// At the first launch: the unit to write codes with.
__device__ __forceinline__ float guessed_unit(const Units& units) {
  const std::uint32_t guess = units.guess[0];
  if (blockIdx.x == 0 && threadIdx.x == 0) units.guess[1] = guess;
  return __uint_as_float(guess);
}
// At the second, by kTileThreads threads: the unit, and whether the first had another.
struct SettledUnit {
  float unit;
  bool was_wrong;
};
template <class F>
__device__ __forceinline__ SettledUnit settled_unit(const Units& units) {
  const float unit = unit_of_slots<F>(units.slots);
  const std::uint32_t tried = units.guess[1], bits = __float_as_uint(unit);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *units.unit = unit;
    units.guess[0] = bits;
  }
  return {unit, tried != bits};
}

// Of an op that leaves codes, with empty slots in its scratch.
inline Units empty_units(const OpContext& op) {
  auto* slots = op.scratch<std::uint32_t>();
  QT_CUDA(cudaMemsetAsync(slots, 0, quantize::kSlots * sizeof *slots, op.stream()));
  const int codes = quantize::at_source(op.op.kind)->codes;
  return {slots, op.out_data<std::uint32_t>(codes + quantize::kUnit + 1),
          op.out_data<float>(codes + quantize::kUnit)};
}
// Where the codes of a [rows, cols] result go.
inline CodesOut codes_out(const OpContext& op, std::int64_t rows, std::int64_t cols) {
  const int codes = quantize::at_source(op.op.kind)->codes;
  return {op.out_data<std::uint8_t>(codes + quantize::kCodes),
          op.out_data<std::uint8_t>(codes + quantize::kTransposed), rows, cols, cols};
}
inline DType codes_format(const OpContext& op) {
  const int codes = quantize::at_source(op.op.kind)->codes;
  return op.out(codes + (op.has_out(codes) ? quantize::kCodes : quantize::kTransposed)).dtype;
}

// Blocks that take tiles in turn.
inline unsigned grid_of_tiles(std::int64_t tiles, int multiprocessors) {
  return static_cast<unsigned>(
      std::min<std::int64_t>(tiles, std::int64_t{multiprocessors} * 8 * 4));
}

}  // namespace quintet::cuda
