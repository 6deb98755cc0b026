// Writes zeros: the gaps between weights in a flat gradient, which no other op writes and the norm
// reads.
#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {

const OpDecl kZeroDecl = {
    .kind = OpKind::kZero,
    .name = "zero",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      QT_CHECK(v.has_out(0), "zero needs a tensor to clear");
      return {{"", v.out(0).shape, v.out(0).dtype}};
    },
};

}  // namespace quintet
