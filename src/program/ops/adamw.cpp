#include "program/ops/adamw.h"

#include "base/check.h"
#include "base/moments.h"
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
      const DType moments = v.in(adamw::kM).dtype;
      QT_CHECK((is_float(moments) || moments == DType::kU8) && v.in(adamw::kV).dtype == moments,
               "moments in {} and {}", name_of(moments), name_of(v.in(adamw::kV).dtype));
      for (const int scales : {adamw::kMScales, adamw::kVScales})
        QT_CHECK(v.has_in(scales) == (moments == DType::kU8), "moments in {} {} scales",
                 name_of(moments), v.has_in(scales) ? "with" : "without");
      const Shape blocks{moment_blocks(master.shape.numel())};
      const DType working =
          v.has_out(adamw::kWorking) ? v.out(adamw::kWorking).dtype : DType::kBF16;
      return {{"master", master.shape, master.dtype}, {"m", master.shape, moments},
              {"v", master.shape, moments},           {"working", master.shape, working},
              {"ema", master.shape, DType::kF32},     {"m.scales", blocks, DType::kF32},
              {"v.scales", blocks, DType::kF32}};
    },
};

}  // namespace quintet
