// Who writes which part of a checkpoint. Ranks hold pieces of weights as their layout has it:
// slices of rows or columns, flat parts of buckets, several copies of the same. The checkpoint is
// written in blocks of whole tensors. Each block gets one writer, the rank that has most of it as
// far as that keeps the ranks' parts about equal; the others send it theirs.
//
// All ranks compute the same from the pieces of all, once, before the first checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/checkpoint_layout.h"

namespace quintet {

// A run of elements of the part of a weight that a rank has: rows [row0, row0 + rows) and columns
// [col0, col0 + cols) of the whole, row by row, of these the elements [first, first + count).
struct HeldPiece {
  std::int64_t weight = 0;
  std::int64_t per_element = 1;  // else: of a value that all who have the weight have whole
  std::int64_t row0 = 0, rows = 0, col0 = 0, cols = 0;
  std::int64_t width = 0;  // columns of the whole
  std::int64_t first = 0, count = 0;
  // Of all copies of an element, one is counted.
  std::int64_t counted = 1;

  // How many elements of the part come before an element of the whole.
  std::int64_t before(std::int64_t element) const;
  // The element of the whole that is this one of the part.
  std::int64_t element_at(std::int64_t at) const {
    return (row0 + at / cols) * width + col0 + at % cols;
  }
};
std::string pieces_to_text(const std::vector<HeldPiece>& pieces);
std::vector<HeldPiece> pieces_from_text(const std::string& text);

// A part of a block, as one rank has it: elements [at, at + count) of a piece's part.
struct Contribution {
  std::int32_t rank = 0;
  std::int32_t piece = 0;  // of that rank's
  std::int64_t at = 0, count = 0;
};

// A block that this rank writes, or has a part of that it sends to who does.
struct BlockShare {
  std::int32_t tensor = 0;            // of the layout's
  std::int64_t block = 0;             // numbered through all tensors
  std::int64_t first = 0, count = 0;  // elements of the tensor
  std::int32_t writer = 0;
  std::vector<Contribution> parts;  // in the writer's own list all, elsewhere its own
};

// What `rank` has to do, in the order of blocks. `pieces`: of all ranks.
std::vector<BlockShare> share_blocks(const CheckpointLayout& layout,
                                     const std::vector<std::vector<HeldPiece>>& pieces,
                                     std::int32_t rank);

}  // namespace quintet
