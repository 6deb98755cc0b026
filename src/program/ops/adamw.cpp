#include "program/ops/adamw.h"

#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {

const OpDecl kAdamWDecl = {
    .kind = OpKind::kAdamW,
    .name = "adamw",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& master = v.in(adamw::kMaster);
      QT_CHECK(v.in(adamw::kGrad).shape == master.shape, "grad {} for master {}",
               v.in(adamw::kGrad).shape.str(), master.shape.str());
      QT_CHECK(master.dtype == (v.has_in(adamw::kWorkingIn) ? DType::kI16 : DType::kF32),
               "master in {}", name_of(master.dtype));
      const DType working =
          v.has_out(adamw::kWorking) ? v.out(adamw::kWorking).dtype : DType::kBF16;
      return {{"master", master.shape, master.dtype},
              {"m", master.shape, DType::kF32},
              {"v", master.shape, DType::kF32},
              {"working", master.shape, working},
              {"ema", master.shape, DType::kF32}};
    },
};

}  // namespace quintet
