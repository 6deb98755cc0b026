#include "program/ops/adamw.h"

#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {

const OpDecl kAdamWDecl = {
    .kind = OpKind::kAdamW,
    .name = "adamw",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& master = v.in(adamw::kMaster);
      QT_CHECK(master.dtype == DType::kF32 && v.in(adamw::kGrad).shape == master.shape,
               "grad {} for master {}", v.in(adamw::kGrad).shape.str(), master.shape.str());
      const DType working =
          v.has_out(adamw::kWorking) ? v.out(adamw::kWorking).dtype : DType::kBF16;
      return {{"master", master.shape, DType::kF32},
              {"m", master.shape, DType::kF32},
              {"v", master.shape, DType::kF32},
              {"working", master.shape, working}};
    },
};

}  // namespace quintet
