#include "program/ops/adafactor.h"

#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {
namespace {

std::int64_t state_size(const OpView& v) {
  std::int64_t size = 0;
  for (const AdafactorSegment& s : v.attrs<AdafactorAttrs>().segments) size += s.state_size();
  return size;
}

}  // namespace

const OpDecl kAdafactorSumsDecl = {
    .kind = OpKind::kAdafactorSums,
    .name = "adafactor_sums",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      for (const AdafactorSegment& s : v.attrs<AdafactorAttrs>().segments)
        QT_CHECK(s.counted || !s.in_norm, "a run in the norm that is not in the sums");
      return {{"", Shape{state_size(v)}, DType::kF32}, {"square", Shape{1}, DType::kF32}};
    },
};

const OpDecl kAdafactorMomentsDecl = {
    .kind = OpKind::kAdafactorMoments,
    .name = "adafactor_moments",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Shape shape{state_size(v)};
      return {{"state", shape, DType::kF32}, {"factors", shape, DType::kF32}};
    },
};

const OpDecl kAdafactorRmsDecl = {
    .kind = OpKind::kAdafactorRms,
    .name = "adafactor_rms",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const auto weights = static_cast<std::int64_t>(v.attrs<AdafactorAttrs>().segments.size());
      return {{"", Shape{2 * weights}, DType::kF32}};
    },
};

const OpDecl kAdafactorApplyDecl = {
    .kind = OpKind::kAdafactorApply,
    .name = "adafactor_apply",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& master = v.in(adafactor_apply::kMaster);
      // A remainder is nothing without the working copy.
      const bool reads_working = v.has_in(adafactor_apply::kWorkingIn);
      QT_CHECK((master.dtype == DType::kI16) == reads_working,
               "master in {} {} a working copy to read", name_of(master.dtype),
               reads_working ? "with" : "without");
      const DType working = v.has_out(adafactor_apply::kWorking)
                                ? v.out(adafactor_apply::kWorking).dtype
                                : DType::kBF16;
      return {{"master", master.shape, master.dtype},
              {"working", master.shape, working},
              {"ema", master.shape, DType::kF32}};
    },
};

}  // namespace quintet
