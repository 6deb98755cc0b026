#include "program/ops/activation.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

const OpDecl kActivationDecl = {
    .kind = OpKind::kActivation,
    .name = "activation",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& h = v.in(activation::kH);
      const std::int64_t width = h.shape.cols();
      const TensorSpec largest{"largest", Shape{quantize::kSlots}, DType::kI32};
      if (!v.attrs<ActivationAttrs>().gated) return {{"", h.shape, h.dtype}, largest};
      QT_CHECK(width % 2 == 0, "a gated activation of odd width {}", width);
      return {{"", h.shape.with_cols(width / 2), h.dtype}, largest};
    },
    .vjp =
        [](VjpContext& c) {
          const TensorId largest = c.out(activation::kLargest) == kNone ? kNone : kCreate;
          c.contribute(
              activation::kH,
              c.builder.emit(c.grad_name(activation::kH), OpKind::kActivationBackward,
                             c.forward.attrs, {c.d_out(activation::kY), c.in(activation::kH)},
                             {kCreate, largest})[0]);
        },
    .redo = Redo::kCheap,
};

const OpDecl kActivationBackwardDecl = {
    .kind = OpKind::kActivationBackward,
    .name = "activation_backward",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& h = v.in(activation_backward::kH);
      return {{"", h.shape, h.dtype}, {"largest", Shape{quantize::kSlots}, DType::kI32}};
    },
    .in_place = {{{activation_backward::kDh, activation_backward::kH}, {}}},
};

}  // namespace quintet
