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

// A remainder is nothing without the working copy.
void check_master(const OpView& v, const Tensor& master, int working_slot) {
  QT_CHECK((master.dtype == DType::kI16) == v.has_in(working_slot),
           "master in {} {} a working copy to read", name_of(master.dtype),
           v.has_in(working_slot) ? "with" : "without");
}

}  // namespace

const OpDecl kAdafactorSumsDecl = {
    .kind = OpKind::kAdafactorSums,
    .name = "adafactor_sums",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      return {{"", Shape{state_size(v)}, DType::kF32}};
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
      check_master(v, v.in(adafactor_rms::kMaster), adafactor_rms::kWorkingIn);
      return {{"", Shape{2 * weights}, DType::kF32}};
    },
};

const OpDecl kAdafactorApplyDecl = {
    .kind = OpKind::kAdafactorApply,
    .name = "adafactor_apply",
    .infer = [](const OpView& v) -> std::vector<TensorSpec> {
      const Tensor& master = v.in(adafactor_apply::kMaster);
      check_master(v, master, adafactor_apply::kWorkingIn);
      const DType working = v.has_out(adafactor_apply::kWorking)
                                ? v.out(adafactor_apply::kWorking).dtype
                                : DType::kBF16;
      return {{"master", master.shape, master.dtype},
              {"working", master.shape, working},
              {"ema", master.shape, DType::kF32}};
    },
};

}  // namespace quintet
