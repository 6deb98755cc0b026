// How Adafactor's kernels walk over weights, and what they know of them.
//
// A launch takes several weights at once: a layer has some ten, and the gaps between their launches
// would cost as much as the smaller ones. All passes over elements walk alike: a block has a stripe
// of 256 columns in a slab of rows of one weight; each warp takes whole rows of the stripe, each
// lane 8 columns, which stay the same for all rows. Sums go block by block to the scratch and are
// added up afterwards, in order.
#pragma once

#include <algorithm>

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
  std::int64_t row_sums, col_sums;  // where the partial sums of `adafactor_sums` lie in the scratch
  float weight_decay, rate_scale;
  int first_block, stripes, slabs;  // of the launch
  bool factored, counted, in_norm;
  bool wide;   // packs are aligned wherever the walk finds them
  bool whole;  // whole rows of whole packs, as it is without sharding

  __device__ std::int64_t offset(std::int64_t r) const { return begin + r * part_cols - first; }
  __device__ bool holds(std::int64_t element) const {
    return element >= first && element < first + size;
  }
  __device__ std::int64_t state_size() const { return factored ? rows + cols : rows * cols; }
};

struct Runs {
  static constexpr int kMost = 16;  // a kernel's parameters have room for so many
  Run run[kMost];
  int count = 0, blocks = 0;

  // The run that a block belongs to.
  __device__ int of_block() const {
    int i = 0;
    while (i + 1 < count && blockIdx.x >= static_cast<unsigned>(run[i + 1].first_block)) ++i;
    return i;
  }
};

// What a block has of its run.
struct Place {
  std::int64_t stripe, slab;  // which
  std::int64_t col0;          // first column
  std::int64_t begin, end;    // rows, counted from the run's first

  __device__ explicit Place(const Run& s) {
    const auto block = static_cast<std::int64_t>(blockIdx.x) - s.first_block;
    stripe = block % s.stripes;
    slab = block / s.stripes;
    col0 = stripe * DeviceGrid::kStripe;
    begin = s.count * slab / s.slabs;
    end = s.count * (slab + 1) / s.slabs;
  }
};

// Calls body.visit<M>(k, j, row, col, flat index) for M neighbouring elements, which belong to
// column j of pack k of this lane, and body.end_row(row) after each row.
template <int N, class Body>
__device__ void walk(const Run& s, const Place& place, Body& body) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (std::int64_t r = s.base + place.begin + warp; r < s.base + place.end; r += kWarps) {
    const std::int64_t at = r * s.part_cols, offset = s.offset(r);
#pragma unroll
    for (int k = 0; k < kLaneCols / N; ++k) {
      const std::int64_t col = place.col0 + (k * 32 + lane) * N;
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

// Calls launch(runs, index of the first weight) for as many weights at a time as one launch takes.
// `width`: elements of a pack.
template <class Launch>
void for_runs(const AdafactorAttrs& attrs, int width, bool aligned, const Launch& launch) {
  for (std::size_t first = 0; first < attrs.segments.size(); first += Runs::kMost) {
    const std::size_t count = std::min<std::size_t>(Runs::kMost, attrs.segments.size() - first);
    Runs runs{};
    std::int64_t sums = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const AdafactorSegment& s = attrs.segments[first + i];
      const DeviceGrid grid = DeviceGrid::of(s);
      const std::int64_t size = s.end - s.begin, rows = adafactor::row_count(s);
      const bool wide = aligned && s.part_cols % width == 0 && (s.begin - s.first) % width == 0;
      runs.run[i] = {.begin = s.begin,
                     .first = s.first,
                     .size = size,
                     .part_cols = s.part_cols,
                     .base = adafactor::first_row(s),
                     .count = rows,
                     .row0 = s.row0,
                     .col0 = s.col0,
                     .rows = s.rows,
                     .cols = s.cols,
                     .state = s.state,
                     .row_sums = sums,
                     .col_sums = sums + grid.stripes * rows,
                     .weight_decay = s.weight_decay,
                     .rate_scale = s.rate_scale,
                     .first_block = runs.blocks,
                     .stripes = static_cast<int>(grid.stripes),
                     .slabs = static_cast<int>(grid.slabs),
                     .factored = s.factored,
                     .counted = s.counted,
                     .in_norm = s.in_norm,
                     .wide = wide,
                     .whole = wide && s.first == 0 && size == rows * s.part_cols};
      runs.blocks += static_cast<int>(grid.stripes * grid.slabs);
      sums += grid.sums(s);
    }
    runs.count = static_cast<int>(count);
    launch(runs, first);
  }
}

}  // namespace quintet::cuda::adafactor_walk
