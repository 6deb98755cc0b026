// How parameters are laid out for data parallelism: units, alone or several together, as flat
// buckets that are communicated as one and cut into equal parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/grid.h"
#include "program/program.h"

namespace quintet {

struct Bucket {
  std::string name;
  std::vector<std::int32_t> units;
  std::vector<std::int64_t> unit_offsets;  // elements, by position in `units`
  std::int64_t size = 0;                   // elements, padded to a multiple of the parts
  std::int32_t parts = 1;                  // 1: every data-parallel rank has it whole
  TensorId params = kNone, grads = kNone;  // the latter kNone in a program without gradients

  std::int64_t part_size() const { return size / parts; }
};

// Joins the units of a program into buckets cut into `parts` each (small units into one), and moves
// their parameters and gradients into the buckets' tensors. Views of them stay valid.
std::vector<Bucket> make_buckets(Program& program, std::int32_t parts, const LayoutConfig& layout);

// Runs of elements of a bucket that belong to no weight: alignment and padding.
struct Run {
  std::int64_t begin = 0, end = 0;
};
std::vector<Run> gaps_of(const Program& program, const Bucket& bucket);

// The elements [begin, end) of a bucket as pieces of weights, at offsets from `begin`.
std::vector<ShardPiece> pieces_of(const Program& program, const Bucket& bucket, std::int64_t begin,
                                  std::int64_t end);

}  // namespace quintet
