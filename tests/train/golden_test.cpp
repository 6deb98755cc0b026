// Loss, gradients and training curves of the golden models, in every mode.
#include "train/golden.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

Path golden(const std::string& name) {
  return Path(QUINTET_SOURCE_DIR) / "tests/goldens" / name;
}

class GoldenTest
    : public ::testing::TestWithParam<std::tuple<std::string, Recompute, DType, std::int32_t>> {};

TEST_P(GoldenTest, IsReproduced) {
  const auto& [name, recompute, dtype, accumulate] = GetParam();
  GoldenOptions options;
  options.recompute = recompute;
  options.dtype = dtype;
  options.accumulate = accumulate;
  options.target.threads = 2;
#ifdef QUINTET_TEST_CUDA  // built once for each device
  options.target.device = Device::kCuda;
#endif
  const auto report = check_golden(golden(name), options, *make_single_world());
  ASSERT_TRUE(report.ok()) << report.error().message;
  const GoldenReport& r = report.value();
  EXPECT_LE(r.loss.error, r.tolerances.loss);
  EXPECT_LE(r.grad_norm.error, r.tolerances.grad_norm);
  for (const GoldenValue& g : r.gradients) EXPECT_LE(g.error, r.tolerances.gradient) << g.name;
  EXPECT_EQ(r.adamw.size(), 12u);
  EXPECT_EQ(r.adafactor.size(), 12u);
  for (const GoldenValue& v : r.adamw) EXPECT_LE(v.error, r.tolerances.trace) << "AdamW " << v.name;
  for (const GoldenValue& v : r.adafactor)
    EXPECT_LE(v.error, r.tolerances.trace) << "Adafactor " << v.name;
  EXPECT_TRUE(r.passed());
}

std::string case_name(const ::testing::TestParamInfo<GoldenTest::ParamType>& info) {
  constexpr const char* kModes[] = {"none", "selective", "full"};
  return std::get<0>(info.param) + "_" + kModes[static_cast<int>(std::get<1>(info.param))] + "_" +
         std::string(name_of(std::get<2>(info.param))) + "_x" +
         std::to_string(std::get<3>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Modes, GoldenTest,
    ::testing::Combine(::testing::Values("tiny", "grid", "heads64", "long"),
                       ::testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kFull),
                       ::testing::Values(DType::kF32, DType::kBF16), ::testing::Values(1)),
    case_name);
INSTANTIATE_TEST_SUITE_P(Accumulated, GoldenTest,
                         ::testing::Combine(::testing::Values("grid", "heads64"),
                                            ::testing::Values(Recompute::kNone, Recompute::kFull),
                                            ::testing::Values(DType::kF32),
                                            ::testing::Values(2, 4)),
                         case_name);

}  // namespace
}  // namespace quintet
