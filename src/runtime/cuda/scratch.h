// The scratch memory of the GPU's kernels: one layout for the kernel that uses it and the backend
// that plans it. Compiled without CUDA, too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"
#include "program/ops/adafactor.h"

namespace quintet {

namespace matmul {
// What a device's matrix library may use beside the operands.
inline constexpr std::int64_t kDeviceWorkspace = std::int64_t{32} << 20;
}  // namespace matmul

namespace quantize_weights {
// A device works on up to this many matrices in one launch. Its scratch, for each launch: which
// piece of the work comes next, and of each matrix the largest magnitude so far and how many pieces
// have been looked at.
inline constexpr int kDeviceMatrices = 16;
inline constexpr std::int64_t kDeviceWords = 1 + 2 * kDeviceMatrices;
constexpr std::int64_t device_bytes(std::int64_t matrices) {
  return 4 * kDeviceWords * ((matrices + kDeviceMatrices - 1) / kDeviceMatrices);
}
}  // namespace quantize_weights

namespace attention {
// A device's kernels work on tiles of this many queries and keys.
inline constexpr std::int64_t kDeviceTile = 64;
// Scratch of the plain kernels' backward, in bytes: a number for each row of scores, then for each
// tile of queries what it adds to each bucket of the bias.
struct DeviceScratch {
  std::int64_t sums_offset, bytes;
  static DeviceScratch backward(std::int64_t batch, std::int64_t queries, std::int64_t heads,
                                std::int64_t buckets) {
    const std::int64_t tiles = (queries + kDeviceTile - 1) / kDeviceTile;
    const std::int64_t rows = (4 * batch * heads * queries + 255) / 256 * 256;
    return {rows, rows + 4 * batch * heads * tiles * buckets};
  }
};
// The most that the Hopper kernels' backward asks for (head size 64): two numbers a row, float32
// sums of dQ for every block at work, and the bias by distance.
inline std::int64_t hopper_backward_bytes(std::int64_t batch, std::int64_t queries,
                                          std::int64_t heads, bool biased) {
  const std::int64_t items = batch * heads, blocks = std::min<std::int64_t>(items, 144);
  const std::int64_t rows = (queries + 127) / 128 * 128;
  return 8 * items * rows + blocks * rows * 64 * 4 + (biased ? items * (512 * 4 + 256) : 0);
}
}  // namespace attention

namespace linear_cross_entropy {
// A device's scratch, in bytes: the chunk's logits in the working precision, rows padded to 16
// bytes; two losses and four statistics for each token; and what the matrix library wants.
struct DeviceScratch {
  std::int64_t ld, losses_offset, workspace_offset, bytes;
  static DeviceScratch of(std::int64_t chunk, std::int64_t vocabulary, DType dtype) {
    const auto aligned = [](std::int64_t size) { return (size + 255) / 256 * 256; };
    const std::int64_t ld = (vocabulary + 7) / 8 * 8;
    const std::int64_t losses = aligned(chunk * ld * size_of(dtype));
    const std::int64_t workspace = aligned(losses + 6 * 4 * chunk);
    return {ld, losses, workspace, workspace + matmul::kDeviceWorkspace};
  }
};
}  // namespace linear_cross_entropy

namespace embedding_backward {
// A device sorts the tokens by id and sums them in blocks of this many.
inline constexpr std::int64_t kDeviceBlock = 64;
// Its scratch, in bytes: keys and tokens, twice; what CUB's sort takes beside them, and more (a
// kilobyte for each few thousand tokens); two pieces of runs for each block.
struct DeviceScratch {
  std::int64_t sort_offset, pieces_offset, bytes;
  std::int64_t sort_bytes() const { return pieces_offset - sort_offset; }
  static DeviceScratch of(std::int64_t tokens, std::int64_t width) {
    const auto aligned = [](std::int64_t size) { return (size + 255) / 256 * 256; };
    const std::int64_t blocks = (tokens + kDeviceBlock - 1) / kDeviceBlock;
    const std::int64_t sort = aligned(16 * tokens), pieces = aligned(sort + tokens + 65536);
    return {sort, pieces, pieces + blocks * 2 * width * 4};
  }
};
}  // namespace embedding_backward

namespace rms_norm_backward {
// The same on a device, where a block of rows is a block of threads. As many as run at the same
// time on 132 multiprocessors, by measurement: each leaves a part of the weight's gradient to add
// up, and one more than fit would run alone.
inline std::int64_t device_blocks(std::int64_t rows, std::int64_t cols) {
  const std::int64_t most = cols <= 768 ? 264 : cols <= 1024 ? 132 : cols <= 2048 ? 660 : 264;
  return std::clamp<std::int64_t>(rows / 4, 1, most);
}
}  // namespace rms_norm_backward

namespace squared_norm {
// A device sums in this many pieces, then over the pieces, whose sums are doubles in the scratch.
inline std::int64_t device_blocks(std::int64_t elements) {
  return std::clamp<std::int64_t>(elements / 8192, 1, 1056);
}
}  // namespace squared_norm

namespace adafactor {
// How a device walks over a weight: stripes of columns times slabs of rows, a block each.
struct DeviceGrid {
  static constexpr std::int64_t kStripe = 256, kSlab = 128;
  std::int64_t stripes, slabs;
  static DeviceGrid of(const AdafactorSegment& s) {
    const std::int64_t stripes = (s.part_cols + kStripe - 1) / kStripe;
    const std::int64_t most = std::max<std::int64_t>(1056 / stripes, 1);
    return {stripes, std::clamp<std::int64_t>(row_count(s) / kSlab, 1, most)};
  }
  // Scratch of the ops that sum: partial sums over rows and over columns, float32; two doubles for
  // each block.
  std::int64_t sums(const AdafactorSegment& s) const {
    return s.factored ? stripes * row_count(s) + slabs * s.part_cols : 0;
  }
  std::int64_t rms_bytes() const { return 16 * stripes * slabs; }
};
// A device's blocks that blend the running means of one weight; each leaves a double.
inline constexpr std::int64_t kMomentBlocks = 32;
}  // namespace adafactor

}  // namespace quintet
