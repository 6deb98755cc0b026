#include "program/ops/dropout.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

const OpDecl kDropoutDecl = {
    .kind = OpKind::kDropout,
    .name = "dropout",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& x = v.in(dropout::kX);
      QT_CHECK(v.in(dropout::kStep).dtype == DType::kI64, "the step must be i64");
      return {{"", x.shape, x.dtype}};
    },
    .vjp =
        [](VjpContext& c) {
          const TensorId dy = c.d_out(dropout::kY);
          const TensorId addend = c.take_addend(dropout::kX);
          c.contribute(dropout::kX,
                       c.builder.emit_one(c.grad_name(dropout::kX), OpKind::kDropout,
                                          c.forward.attrs, {dy, c.in(dropout::kStep), addend}));
          if (c.in(dropout::kAddend) != kNone) c.contribute(dropout::kAddend, dy);
        },
    .redo = Redo::kCheap,
    .in_place = {{{dropout::kY, dropout::kX}, {dropout::kY, dropout::kAddend}}},
};

}  // namespace quintet
