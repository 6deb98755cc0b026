// y[i] = table[ids[i]]; its backward adds each dy[i] to row ids[i] of the table's gradient, in the
// order of i, so that the sum is the same every time.
#pragma once

namespace quintet {

namespace embedding {
enum Inputs { kTable, kIds };  // [V, d], i32 [b, s]
enum Outputs { kOut };         // [b, s, d]
}  // namespace embedding

namespace embedding_backward {
enum Inputs { kDy, kIds, kAddend };  // the addend optional: without it untouched rows become zero
enum Outputs { kDTable };
}  // namespace embedding_backward

}  // namespace quintet
