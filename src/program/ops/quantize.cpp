#include "program/ops/quantize.h"

#include "base/check.h"
#include "base/index.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

TensorId largest_of(const Program& program, TensorId tensor, std::int32_t unit) {
  const Op* op = program.producer(tensor);
  if (op == nullptr || OpView::slot(op->outputs, 0) != tensor) return kNone;
  const auto chunk = [&](std::int32_t of) { return program.units.at(index(of)).chunk; };
  if (op->tag.unit < 0 || unit < 0 || chunk(op->tag.unit) != chunk(unit)) return kNone;
  switch (op->kind) {
    case OpKind::kRmsNorm:
      return OpView::slot(op->outputs, rms_norm::kLargest);
    case OpKind::kRmsNormBackward:
      return OpView::slot(op->outputs, rms_norm_backward::kLargest);
    case OpKind::kActivation:
      return OpView::slot(op->outputs, activation::kLargest);
    case OpKind::kActivationBackward:
      return OpView::slot(op->outputs, activation_backward::kLargest);
    default:
      return kNone;
  }
}

const OpDecl kQuantizeDecl = {
    .kind = OpKind::kQuantize,
    .name = "quantize",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& x = v.in(quantize::kX);
      const DType format = v.attrs<QuantizeAttrs>().format;
      QT_CHECK(is_fp8(format) && is_float(x.dtype), "{} in {}", name_of(x.dtype), name_of(format));
      QT_CHECK(
          x.shape.rows() % quantize::kMultiple == 0 && x.shape.cols() % quantize::kMultiple == 0,
          "{} as an operand in eight bits: rows and columns must be multiples of {}", x.shape.str(),
          quantize::kMultiple);
      return {{"fp8", x.shape, format},
              {"fp8t", Shape{x.shape.cols(), x.shape.rows()}, format},
              {"fp8_unit", Shape{1}, DType::kF32}};
    },
    .vjp =
        [](VjpContext& c) {
          const TensorId d = c.d_out(quantize::kCodes);
          if (d != kNone) c.contribute(quantize::kX, d);
        },
    .redo = Redo::kCheap,
};

}  // namespace quintet
