#include "program/ops/activation.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {
namespace {

std::vector<TensorSpec> results(const OpView& v, const Shape& shape, DType dtype) {
  std::vector<TensorSpec> specs = {{"", shape, dtype},
                                   {"largest", Shape{quantize::kSlots}, DType::kI32}};
  quantize::add_codes_at_source(v, shape, specs);
  return specs;
}

}  // namespace

const OpDecl kActivationDecl = {
    .kind = OpKind::kActivation,
    .name = "activation",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& h = v.in(activation::kH);
      const std::int64_t width = h.shape.cols();
      if (!v.attrs<ActivationAttrs>().gated) return results(v, h.shape, h.dtype);
      QT_CHECK(width % 2 == 0, "a gated activation of odd width {}", width);
      return results(v, h.shape.with_cols(width / 2), h.dtype);
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
      return results(v, h.shape, h.dtype);
    },
    .in_place = {{{activation_backward::kDh, activation_backward::kH}, {}}},
};

}  // namespace quintet
