// c = a + b, where two gradients of one value meet and no other op could take the sum along.
#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

const OpDecl kAddDecl = {
    .kind = OpKind::kAdd,
    .name = "add",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor &a = v.in(0), &b = v.in(1);
      QT_CHECK(a.shape == b.shape && a.dtype == b.dtype, "add {} and {}", a.shape.str(),
               b.shape.str());
      return {{"", a.shape, a.dtype}};
    },
    .vjp =
        [](VjpContext& c) {
          c.contribute(0, c.d_out(0));
          c.contribute(1, c.d_out(0));
        },
    .redo = Redo::kCheap,
    .in_place = {{{0, 0}, {0, 1}}},
};

}  // namespace quintet
