// From a shard's pieces to elements of whole weights, and back.
#pragma once

#include <algorithm>
#include <span>

#include "base/moments.h"
#include "program/program.h"

namespace quintet {

inline const Weight& weight_of(const Program& program, const ShardPiece& piece) {
  return program.units[static_cast<std::size_t>(piece.unit)]
      .weights[static_cast<std::size_t>(piece.weight)];
}

// The unit that a shard's ops are about, the first of its bucket; -1: none, the bucket is empty.
inline std::int16_t unit_of(const Shard& shard) {
  return static_cast<std::int16_t>(shard.whole_pieces.empty() ? -1
                                                              : shard.whole_pieces.front().unit);
}

// Blocks of codes that some pieces have, each its own: no block has elements of two weights.
inline std::int64_t moment_blocks(std::span<const ShardPiece> pieces) {
  std::int64_t blocks = 0;
  for (const ShardPiece& piece : pieces) blocks += moment_blocks(piece.count);
  return blocks;
}

// Calls body(element of the whole weight, element of the shard, count) for every contiguous run of
// a piece. Padding belongs to no weight and is left out.
template <class Body>
void for_each_run(const Weight& weight, const ShardPiece& piece, const Body& body) {
  const std::int64_t width = weight.shape.cols();
  const std::int64_t end = std::min(piece.first + piece.count, weight.rows * weight.cols);
  if (weight.cols == width) {  // whole rows follow each other in the weight, too
    if (piece.first < end) body(weight.row0 * width + piece.first, piece.offset, end - piece.first);
    return;
  }
  for (std::int64_t at = piece.first; at < end;) {
    const std::int64_t row = at / weight.cols, col = at % weight.cols;
    const std::int64_t count = std::min(weight.cols - col, end - at);
    body((weight.row0 + row) * width + weight.col0 + col, piece.offset + at - piece.first, count);
    at += count;
  }
}

}  // namespace quintet
