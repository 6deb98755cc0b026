#include <numeric>

#include <gtest/gtest.h>

#include "program/ops/linear_cross_entropy.h"
#include "tests/ops/op_case.h"
#include "tests/ops/reference.h"

namespace quintet::testing {
namespace {

namespace lce = linear_cross_entropy;

struct LossSetup {
  std::int64_t batch, tokens, width, vocabulary, chunk;
  float scale, z_loss, smoothing = 0;
};

class LossTest : public ::testing::TestWithParam<std::tuple<LossSetup, DType>> {};

TEST_P(LossTest, ValuesAndGradients) {
  const auto& [s, dtype] = GetParam();
  const LinearCrossEntropyAttrs attrs{s.chunk, s.scale, s.z_loss, s.smoothing};
  HostTensor labels = random_ids({s.batch, s.tokens}, s.vocabulary, 1);
  if (labels.values.size() > 2) labels.values[1] = -100;  // one that does not count
  const HostTensor count =
      scalar(labels.values.size() > 2 ? static_cast<double>(labels.values.size() - 1)
                                      : static_cast<double>(labels.values.size()));
  const Tensors in = {random({s.batch, s.tokens, s.width}, dtype, 2),
                      random({s.vocabulary, s.width}, dtype, 3, 0.5), labels, count};
  const HostTensor expected = reference_loss(in, attrs);
  const auto objective = [&](const Tensors& t) {
    const HostTensor loss = reference_loss(t, attrs);
    return loss.at(0) + loss.at(1);
  };
  const HostTensor dx = numeric_gradient(objective, in, 0);
  HostTensor dw = numeric_gradient(objective, in, 1);
  // bf16 logits are rounded before the softmax and their gradients after it.
  const double bound = dtype == DType::kF32 ? 2e-5 : 2e-2;

  OpCase first{"first writer",
               OpKind::kLinearCrossEntropy,
               attrs,
               {in[0], in[1], labels, count, none(), none()},
               {kMake, kMake, kMake},
               {none(), none(), random(in[1].shape, DType::kF32, 4)}};
  expect_op(first, {expected, dx, dw}, bound);

  const HostTensor loss_before = {Shape{2}, DType::kF32, {0.5, 0.25}};
  const HostTensor dw_before = random(in[1].shape, dtype, 5, 0.1);
  HostTensor loss_sum = expected, dw_sum = dw;
  for (std::size_t i = 0; i < 2; ++i) loss_sum.values[i] += loss_before.values[i];
  for (std::size_t i = 0; i < dw.values.size(); ++i) dw_sum.values[i] += dw_before.values[i];
  expect_op({"accumulating",
             OpKind::kLinearCrossEntropy,
             attrs,
             {in[0], in[1], labels, count, loss_before, dw_before},
             {lce::kLossAddend, kMake, lce::kDWeightAddend},
             {}},
            {loss_sum, dx, dw_sum}, bound);
  expect_op({"evaluation",
             OpKind::kLinearCrossEntropy,
             attrs,
             {in[0], in[1], labels, count, none(), none()},
             {kMake, kSkip, kSkip},
             {}},
            {expected, none(), none()}, bound);

  // Each label's own loss, of which the mean is the loss.
  HostTensor tokens{labels.shape, DType::kF32, {}};
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    Tensors one = in;
    for (std::size_t j = 0; j < labels.values.size(); ++j)
      if (j != i) one[2].values[j] = -1;
    one[3] = scalar(1);
    tokens.values.push_back(labels.values[i] < 0 ? 0 : reference_loss(one, attrs).at(0));
  }
  expect_op({"by label",
             OpKind::kLinearCrossEntropy,
             attrs,
             {in[0], in[1], labels, count, none(), none()},
             {kMake, kSkip, kSkip, kMake},
             {}},
            {expected, none(), none(), tokens}, bound);
}

INSTANTIATE_TEST_SUITE_P(
    All, LossTest,
    ::testing::Combine(::testing::Values(LossSetup{1, 1, 1, 2, 16, 1, 0},
                                         LossSetup{2, 3, 4, 7, 16, 1, 0},
                                         LossSetup{2, 5, 3, 33, 4, 1, 0},  // uneven chunks
                                         LossSetup{1, 7, 5, 65, 1, 0.5f, 0},
                                         LossSetup{2, 3, 6, 17, 2, 1, 1e-2f},
                                         LossSetup{1, 3, 2, 1500, 2, 1, 1e-4f},
                                         LossSetup{2, 3, 4, 7, 16, 1, 0, 0.1f},
                                         LossSetup{2, 5, 3, 33, 4, 0.5f, 1e-2f, 0.3f},
                                         LossSetup{1, 3, 2, 1500, 2, 1, 0, 0.1f}),
                       ::testing::Values(DType::kF32, DType::kBF16)));

TEST(Loss, ABatchWithoutLabelsCostsNothing) {
  const HostTensor labels = integers({1, 2}, {-1, -100});
  const auto out = run_op({"no labels",
                           OpKind::kLinearCrossEntropy,
                           LinearCrossEntropyAttrs{16, 1, 0},
                           {random({1, 2, 3}, DType::kF32, 1), random({5, 3}, DType::kF32, 2),
                            labels, scalar(0), none(), none()},
                           {kMake, kMake, kMake},
                           {}});
  for (const HostTensor& result : out) {
    for (const double value : result.values) EXPECT_EQ(value, 0);
  }
}

TEST(Loss, HugeLogitsStayFinite) {
  HostTensor x = random({1, 3, 4}, DType::kF32, 1, 1e3);
  const auto out = run_op({"huge",
                           OpKind::kLinearCrossEntropy,
                           LinearCrossEntropyAttrs{16, 1, 0},
                           {x, random({9, 4}, DType::kF32, 2, 1e3), integers({1, 3}, {0, 4, 8}),
                            scalar(3), none(), none()},
                           {kMake, kMake, kMake},
                           {}});
  for (const HostTensor& result : out) {
    for (const double value : result.values) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(CountLabels, CountsWhatCounts) {
  const auto out = run_op({"count",
                           OpKind::kCountLabels,
                           NoAttrs{},
                           {integers({2, 3}, {0, 5, -100, -1, 7, -100})},
                           {kMake},
                           {}});
  EXPECT_EQ(out[0].at(0), 3);
}

}  // namespace
}  // namespace quintet::testing
