// y[i] = table[ids[i]]; its backward adds each dy[i] to row ids[i] of the table's gradient, in the
// order of i, so that the sum is the same every time.
//
// Under tensor parallelism the table is this rank's run of rows; an id outside it gives zeros and
// gets no gradient here.
#pragma once

#include <cstdint>

namespace quintet {

struct EmbeddingAttrs {
  std::int64_t first_row = 0;  // id of the table's first row
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("row0", first_row);
  }
};

namespace embedding {
enum Inputs { kTable, kIds };  // [V, d], i32 [b, s]
enum Outputs { kOut };         // [b, s, d]
}  // namespace embedding

namespace embedding_backward {
enum Inputs { kDy, kIds, kAddend };  // the addend optional: without it untouched rows become zero
enum Outputs { kDTable };
}  // namespace embedding_backward

}  // namespace quintet
