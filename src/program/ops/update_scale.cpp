#include "program/ops/update_scale.h"

#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {

const OpDecl kSquaredNormDecl = {
    .kind = OpKind::kSquaredNorm,
    .name = "squared_norm",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      QT_CHECK(is_float(v.in(squared_norm::kX).dtype), "a norm of integers");
      return {{"", Shape{1}, DType::kF32}};
    },
};

const OpDecl kSumDecl = {
    .kind = OpKind::kSum,
    .name = "sum",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      QT_CHECK(v.in(0).dtype == DType::kF32, "sum of {}", name_of(v.in(0).dtype));
      return {{"", Shape{1}, DType::kF32}};
    },
};

const OpDecl kUpdateScaleDecl = {
    .kind = OpKind::kUpdateScale,
    .name = "update_scale",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      QT_CHECK(v.has_in(update_scale::kLoss) == v.has_in(update_scale::kLimits),
               "limits without a loss, or a loss without limits");
      return {{"norm", Shape{1}, DType::kF32}, {"scale", Shape{1}, DType::kF32}};
    },
};

}  // namespace quintet
