// How Adafactor's kernels walk over a weight, and what they know of it.
//
// All passes over a weight's elements walk it alike: blockIdx.x is a stripe of 256 columns,
// blockIdx.y a slab of rows; each warp takes whole rows of its stripe, each lane 8 columns, which
// stay the same for all rows. Sums go block by block to the scratch and are added up afterwards, in
// order.
#pragma once

#include "program/ops/adafactor.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/scratch.h"
#include "runtime/cuda/vector.cuh"

namespace quintet::cuda::adafactor_walk {

inline constexpr int kThreads = 256, kWarps = kThreads / 32, kLaneCols = 8;
using adafactor::DeviceGrid;

// The run of a weight that lies in this rank's flat range (program/ops/adafactor.h), seen from a
// kernel. Row r of the part has columns [begin, end) of the run at flat[offset + column].
struct Run {
  std::int64_t begin, first, size;      // flat[begin] is element `first` of the part
  std::int64_t part_cols, base, count;  // rows [base, base + count) of the part have elements of it
  std::int64_t row0, col0, rows, cols, state;
  bool factored, counted;

  __device__ std::int64_t offset(std::int64_t r) const { return begin + r * part_cols - first; }
  __device__ bool holds(std::int64_t element) const {
    return element >= first && element < first + size;
  }
};

inline Run run_of(const AdafactorSegment& s) {
  return {s.begin,
          s.first,
          s.end - s.begin,
          s.part_cols,
          adafactor::first_row(s),
          adafactor::row_count(s),
          s.row0,
          s.col0,
          s.rows,
          s.cols,
          s.state,
          s.factored,
          s.counted};
}

// Whether packs of N elements are aligned wherever the walk finds them.
inline bool packs_fit(const AdafactorSegment& s, int n) {
  return s.part_cols % n == 0 && (s.begin - s.first) % n == 0;
}

// Calls body.visit<M>(k, j, row, col, flat index) for M neighbouring elements, which belong to
// column j of pack k of this lane, and body.end_row(row) after each row.
template <int N, class Body>
__device__ void walk(const Run& s, Body& body) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t stripe = std::int64_t{blockIdx.x} * DeviceGrid::kStripe;
  const std::int64_t begin = s.count * blockIdx.y / gridDim.y,
                     end = s.count * (blockIdx.y + 1) / gridDim.y;
  for (std::int64_t r = s.base + begin + warp; r < s.base + end; r += kWarps) {
    const std::int64_t at = r * s.part_cols, offset = s.offset(r);
#pragma unroll
    for (int k = 0; k < kLaneCols / N; ++k) {
      const std::int64_t col = stripe + (k * 32 + lane) * N;
      if (col + N <= s.part_cols && s.holds(at + col) && s.holds(at + col + N - 1)) {
        body.template visit<N>(k, 0, r, col, offset + col);
      } else if (N > 1) {
        for (int j = 0; j < N; ++j) {
          if (col + j < s.part_cols && s.holds(at + col + j))
            body.template visit<1>(k, j, r, col + j, offset + col + j);
        }
      }
    }
    body.end_row(r);
  }
}

// Several weights in one launch: there are many small ones.
struct Runs {
  static constexpr int kMost = 16;
  Run run[kMost];
};

// Calls launch.template operator()<N>(): packs of 16 bytes of the gradient, or single elements.
template <class G, class Launch>
void with_width(const AdafactorSegment& s, const G* grad, const Launch& launch) {
  if (packs_fit(s, kWide<G>) && is_wide(grad)) {
    launch.template operator()<kWide<G>>();
  } else {
    launch.template operator()<1>();
  }
}

inline dim3 grid_of(const AdafactorSegment& s) {
  const DeviceGrid grid = DeviceGrid::of(s);
  return dim3(static_cast<unsigned>(grid.stripes), static_cast<unsigned>(grid.slabs));
}

}  // namespace quintet::cuda::adafactor_walk
