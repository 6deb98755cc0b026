// The scratch memory of the CPU's kernels: one layout for the kernel that uses it and the backend
// that plans it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "program/op_decl.h"

namespace quintet {

namespace matmul {
// The CPU kernel's scratch for bf16: float32 copies of a block of A's rows, of B's columns and of
// C.
struct WidenTile {
  std::int64_t m, n, k;
  static WidenTile of(std::int64_t m, std::int64_t n, std::int64_t k) {
    return {std::min<std::int64_t>(m, 512), std::min<std::int64_t>(n, 512), k};
  }
  std::int64_t bytes() const { return 4 * (m * k + n * k + m * n); }
};
}  // namespace matmul

namespace attention {
// Queries are taken in blocks of this many rows.
inline constexpr std::int64_t kQueryBlock = 64;

// The CPU kernels' scratch begins with the bucket of every distance, shared by all threads.
inline std::int64_t bucket_floats(std::int64_t queries, std::int64_t keys) {
  return (queries + keys + 15) / 16 * 16;
}

// Their scratch for one thread, in floats: scores of a block of queries, the bias by distance, what
// dropout multiplies a row with, and float32 copies of the operands of one head (used for bf16
// only, but always there: small, and one layout for both).
struct Scratch {
  std::int64_t scores, distances, factors, operands;
  static Scratch forward(std::int64_t queries, std::int64_t keys, std::int64_t dim) {
    const std::int64_t block = std::min(queries, kQueryBlock);
    return {block * keys, queries + keys, keys, 2 * keys * dim + 2 * block * dim};
  }
  static Scratch backward(std::int64_t queries, std::int64_t keys, std::int64_t dim) {
    const std::int64_t block = std::min(queries, kQueryBlock);
    return {2 * block * keys, 2 * (queries + keys), keys, 4 * keys * dim + 4 * block * dim};
  }
  std::int64_t bytes() const {
    return (4 * (scores + distances + factors + operands) + 63) / 64 * 64;
  }
};
}  // namespace attention

namespace linear_cross_entropy {
// The CPU kernel's scratch, in floats: the chunk's logits, three numbers for each of its tokens and
// what the ranks of the group send of them, and float32 copies of the chunk and of a block of the
// weight's rows with its gradient (used for bf16).
struct Scratch {
  std::int64_t logits, stats, exchange, chunk_copy, weight_rows, weight_copy;
  static Scratch of(std::int64_t chunk, std::int64_t width, std::int64_t vocabulary,
                    std::int64_t members) {
    const std::int64_t rows = std::min<std::int64_t>(vocabulary, 1024);
    return {chunk * vocabulary, 3 * chunk, members > 1 ? 2 * chunk * members : 0,
            2 * chunk * width,  rows,      2 * rows * width};
  }
  std::int64_t bytes() const { return 4 * (logits + stats + exchange + chunk_copy + weight_copy); }
};
}  // namespace linear_cross_entropy

namespace rms_norm_backward {
// The weight's gradient is summed in this many fixed blocks of rows, then over the blocks: the same
// order whatever the number of threads.
inline std::int64_t row_blocks(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / 16, 1, 64);
}
}  // namespace rms_norm_backward

}  // namespace quintet
