// Communication between ranks, as ops. A group is an entry of Program::groups; every member issues
// the same collective, in the same order. Tensors are seen as flat ranges: what is gathered is the
// members' parts one after the other, in the order of the group.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/shape.h"

namespace quintet {

enum class Reduction : std::uint8_t { kSum, kMax };

struct CollectiveAttrs {
  std::int32_t group = -1;
  std::int32_t group_size = 1;
  Reduction reduction = Reduction::kSum;
  Shape
      shape;  // of the result, where it does not follow from the input: all_gather, reduce_scatter
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("group", group);
    visit("of", group_size);
  }
};

struct TransferAttrs {
  std::int32_t peer = -1;  // world rank
  std::int32_t tag = 0;    // equal on both sides, different for every message between two ranks
  Shape shape;             // recv: of the result
  DType dtype = DType::kF32;
  template <class Visit>
  void visit(Visit&& visit) const {
    visit("peer", peer);
    visit("tag", tag);
  }
};

// y = sum (or maximum) over the members; may work in place.
namespace all_reduce {
enum Inputs { kX };
enum Outputs { kY };
}  // namespace all_reduce

// y = the members' x, one after the other. x may be the member's own part of y.
namespace all_gather {
enum Inputs { kX };
enum Outputs { kY };
}  // namespace all_gather

// y = this member's part of the sum over the members.
namespace reduce_scatter {
enum Inputs { kX };
enum Outputs { kY };
}  // namespace reduce_scatter

namespace send {
enum Inputs { kX };
}
namespace recv {
enum Outputs { kY };
}

}  // namespace quintet
