#include "program/ops/linear_cross_entropy.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

namespace lce = linear_cross_entropy;

const OpDecl kCountLabelsDecl = {
    .kind = OpKind::kCountLabels,
    .name = "count_labels",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      QT_CHECK(v.in(0).dtype == DType::kI32, "labels must be i32");
      return {{"", Shape{1}, DType::kF32}};
    },
};

const OpDecl kLinearCrossEntropyDecl = {
    .kind = OpKind::kLinearCrossEntropy,
    .name = "linear_cross_entropy",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor &x = v.in(lce::kX), &weight = v.in(lce::kWeight), &labels = v.in(lce::kLabels);
      QT_CHECK(x.shape.cols() == weight.shape.cols() && labels.shape == x.shape.leading(),
               "x {}, weight {}, labels {}", x.shape.str(), weight.shape.str(), labels.shape.str());
      QT_CHECK(v.attrs<LinearCrossEntropyAttrs>().chunk > 0, "chunk must be positive");
      const DType grad_dtype = v.has_out(lce::kDWeight) ? v.out(lce::kDWeight).dtype : x.dtype;
      return {{"", Shape{2}, DType::kF32},
              {"dx", x.shape, x.dtype},
              {"dw", weight.shape, grad_dtype},
              {"tokens", labels.shape, DType::kF32}};
    },
    // The gradients are results of the op itself: nothing to emit, only to pass on.
    .vjp = [](VjpContext& c) { c.contribute(lce::kX, c.out(lce::kDx)); },
    .flops =
        [](const OpView& v) {
          const Shape &x = v.in(lce::kX).shape, &weight = v.in(lce::kWeight).shape;
          const double products = v.has_out(lce::kDx) ? 3 : 1;
          return products * 2 * static_cast<double>(x.rows()) * static_cast<double>(x.cols()) *
                 static_cast<double>(weight.rows());
        },
    .group = [](const Op& op) { return std::get<LinearCrossEntropyAttrs>(op.attrs).group; },
};

}  // namespace quintet
