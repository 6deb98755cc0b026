// y = addend + mask * x / (1 - rate). The mask is a function of (seed, site, step, global element
// index), so every layout of ranks draws the same one and the backward draws it again instead of
// keeping it.
#pragma once

#include <cstdint>

namespace quintet {

// Where a local tensor's elements lie in the tensor of the global batch that they are a part of. A
// row is one token.
struct GlobalIndex {
  std::int64_t row_offset = 0;  // first row
  std::int64_t rows = 0;        // rows of one micro-batch, over all ranks that share it
  std::int64_t col_offset = 0;  // first column
  std::int64_t cols = 0;        // columns of the whole
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("row0", row_offset);
    visit("col0", col_offset);
    visit("cols", cols);
  }
};

struct DropoutAttrs {
  float rate = 0;
  std::uint64_t seed = 0;
  std::uint64_t site = 0;  // which dropout of the model: the stream of its name
  GlobalIndex index;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("rate", rate);
    index.visit(visit);
  }
};

namespace dropout {
enum Inputs { kX, kStep, kAddend };  // step: i64 [1]; the addend is optional
enum Outputs { kY };
}  // namespace dropout

}  // namespace quintet
