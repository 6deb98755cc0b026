#include "program/ops/rms_norm.h"

#include "base/check.h"
#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

const OpDecl kRmsNormDecl = {
    .kind = OpKind::kRmsNorm,
    .name = "rms_norm",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor &x = v.in(rms_norm::kX), &weight = v.in(rms_norm::kWeight);
      QT_CHECK(weight.shape == Shape{x.shape.cols()}, "x {}, weight {}", x.shape.str(),
               weight.shape.str());
      std::vector<TensorSpec> specs = {{"", x.shape, x.dtype},
                                       {"rstd", x.shape.leading(), DType::kF32},
                                       {"largest", Shape{quantize::kSlots}, DType::kI32}};
      quantize::add_codes_at_source(v, x.shape, specs);
      return specs;
    },
    .vjp =
        [](VjpContext& c) {
          const TensorId d_weight = c.weight_grad(rms_norm::kWeight);
          const TensorId addend = c.take_addend(rms_norm::kX);
          const TensorId largest = c.out(rms_norm::kLargest) == kNone ? kNone : kCreate;
          const auto out =
              c.builder.emit(c.grad_name(rms_norm::kX), OpKind::kRmsNormBackward, c.forward.attrs,
                             {c.d_out(rms_norm::kY), c.in(rms_norm::kX), c.in(rms_norm::kWeight),
                              c.out(rms_norm::kRstd), addend, d_weight},
                             {kCreate, d_weight, largest});
          c.contribute(rms_norm::kX, out[0]);
        },
    .redo = Redo::kCheap,
};

const OpDecl kRmsNormBackwardDecl = {
    .kind = OpKind::kRmsNormBackward,
    .name = "rms_norm_backward",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor &x = v.in(rms_norm_backward::kX), &dy = v.in(rms_norm_backward::kDy);
      QT_CHECK(x.shape == dy.shape, "x {}, dy {}", x.shape.str(), dy.shape.str());
      const DType grad_dtype = v.has_out(rms_norm_backward::kDWeight)
                                   ? v.out(rms_norm_backward::kDWeight).dtype
                                   : x.dtype;
      return {{"", x.shape, x.dtype},
              {"weight", Shape{x.shape.cols()}, grad_dtype},
              {"largest", Shape{quantize::kSlots}, DType::kI32}};
    },
    .in_place = {{{rms_norm_backward::kDx, rms_norm_backward::kAddend},
                  {rms_norm_backward::kDx, rms_norm_backward::kDy}}},
};

}  // namespace quintet
