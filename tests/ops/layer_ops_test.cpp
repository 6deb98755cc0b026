// The ops of which layers are made, apart from attention: embedding, norm, product, activation,
// dropout, add.
#include <gtest/gtest.h>

#include "program/ops/embedding.h"
#include "tests/ops/op_case.h"
#include "tests/ops/reference.h"

namespace quintet::testing {
namespace {

class LayerOps : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, LayerOps, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(LayerOps, Embedding) {
  for (const auto& [vocabulary, batch, tokens, width] :
       {std::array<std::int64_t, 4>{1, 1, 1, 1}, {7, 2, 5, 3}, {5, 3, 64, 257}, {1000, 2, 33, 8}}) {
    const HostTensor table = random({vocabulary, width}, dtype(), 1);
    const HostTensor ids = random_ids({batch, tokens}, vocabulary, 2);
    expect_op({"embedding", OpKind::kEmbedding, EmbeddingAttrs{}, {table, ids}, {kMake}, {}},
              {reference_embedding({table, ids})}, 0);

    const HostTensor dy = random({batch, tokens, width}, dtype(), 3);
    for (const DType grad_dtype : {dtype(), DType::kF32}) {
      // The gradient of a gather is linear: exact up to the order of sums and one rounding.
      HostTensor expected{table.shape, grad_dtype, std::vector<double>(table.values.size(), 0)};
      for (std::int64_t i = 0; i < ids.shape.numel(); ++i) {
        for (std::int64_t j = 0; j < width; ++j) {
          expected.at(static_cast<std::int64_t>(ids.at(i)) * width + j) += dy.at(i * width + j);
        }
      }
      OpCase c{"embedding_backward",
               OpKind::kEmbeddingBackward,
               EmbeddingAttrs{},
               {dy, ids, none()},
               {kMake},
               {expected}};
      expect_op(c, {expected}, tolerance(grad_dtype));
      c.inputs[embedding_backward::kAddend] = random(table.shape, grad_dtype, 4);
      c.outputs[0] = embedding_backward::kAddend;
      for (std::size_t i = 0; i < expected.values.size(); ++i) {
        expected.values[i] += c.inputs[embedding_backward::kAddend].values[i];
      }
      expect_op(c, {expected}, tolerance(grad_dtype));
    }
  }
}

TEST_P(LayerOps, RmsNorm) {
  for (const auto& [rows, width] :
       {std::array<std::int64_t, 2>{1, 1}, {1, 7}, {3, 8}, {5, 33}, {67, 16}, {2000, 3}}) {
    const RmsNormAttrs attrs{1e-6f};
    const Tensors in = {random({rows, width}, dtype(), 1), random({width}, dtype(), 2)};
    const HostTensor expected = reference_rms_norm(in, 1e-6);
    const OpCase forward{"rms_norm", OpKind::kRmsNorm, attrs, in, {kMake, kMake}, {}};
    expect_op(forward, {expected, none()}, tolerance(dtype()));
    const HostTensor rstd = run_op(forward)[1];

    const HostTensor dy = random(in[0].shape, dtype(), 3), addend = random(in[0].shape, dtype(), 4);
    const HostTensor dw_before = random({width}, DType::kF32, 5);
    const auto objective = [&](const Tensors& t) { return dot(reference_rms_norm(t, 1e-6), dy); };
    // Long columns: every row's gradient is its own, so a few rows stand for all.
    HostTensor dx = none();
    if (rows * width <= 600) {
      dx = numeric_gradient(objective, in, 0);
      for (std::size_t i = 0; i < dx.values.size(); ++i) dx.values[i] += addend.values[i];
    }
    HostTensor dw = numeric_gradient(objective, in, 1);
    for (std::size_t i = 0; i < dw.values.size(); ++i) dw.values[i] += dw_before.values[i];
    expect_op({"rms_norm_backward",
               OpKind::kRmsNormBackward,
               attrs,
               {dy, in[0], in[1], rstd, addend, dw_before},
               {kMake, rms_norm_backward::kDWeightAddend},
               {}},
              {dx, dw}, tolerance(dtype()));
    for (std::size_t i = 0; i < dw.values.size(); ++i) dw.values[i] -= dw_before.values[i];
    if (!dx.absent) {
      for (std::size_t i = 0; i < dx.values.size(); ++i) dx.values[i] -= addend.values[i];
    }
    // Alone, without anything to add to. With width 1 the gradient of x vanishes: only its size
    // counts.
    if (width == 1) dx = none();
    expect_op({"rms_norm_backward alone",
               OpKind::kRmsNormBackward,
               attrs,
               {dy, in[0], in[1], rstd, none(), none()},
               {kMake, kMake},
               {none(), dw_before}},
              {dx, dw}, tolerance(dtype()));
  }
}

TEST_P(LayerOps, Matmul) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {2, 3, 5},
                                {17, 1, 9},
                                {1, 33, 8},
                                {64, 65, 63},
                                {513, 7, 3},
                                {5, 515, 2}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const MatmulAttrs attrs{ta, tb};
        const HostTensor a = random(ta ? Shape{k, m} : Shape{m, k}, dtype(), 1);
        const HostTensor b = random(tb ? Shape{n, k} : Shape{k, n}, dtype(), 2);
        for (const DType out : {dtype(), DType::kF32}) {
          const HostTensor addend = random({m, n}, out, 3);
          for (const bool add : {false, true}) {
            const Tensors in = {a, b, add ? addend : none()};
            expect_op({fmt::format("matmul {}x{}x{} ta {} tb {} add {}", m, n, k, ta, tb, add),
                       OpKind::kMatmul,
                       attrs,
                       in,
                       {kMake},
                       {addend}},
                      {reference_matmul(in, attrs)}, tolerance(out));
          }
        }
      }
    }
  }
}

TEST_P(LayerOps, Activation) {
  for (const auto function : {Nonlinearity::kGeluTanh, Nonlinearity::kRelu}) {
    for (const bool gated : {false, true}) {
      for (const auto& [rows, f] : {std::array<std::int64_t, 2>{1, 1}, {3, 7}, {5, 24}, {9, 33}}) {
        const ActivationAttrs attrs{function, gated};
        const Tensors in = {random({rows, gated ? 2 * f : f}, dtype(), 1, 2.0)};
        expect_op({"activation", OpKind::kActivation, attrs, in, {kMake}, {}},
                  {reference_activation(in, attrs)}, tolerance(dtype()));
        const HostTensor dy = random({rows, f}, dtype(), 2);
        const auto objective = [&](const Tensors& t) {
          return dot(reference_activation(t, attrs), dy);
        };
        expect_op(
            {"activation_backward", OpKind::kActivationBackward, attrs, {dy, in[0]}, {kMake}, {}},
            {numeric_gradient(objective, in, 0)}, tolerance(dtype()));
      }
    }
  }
}

TEST(Activation, GeluIsRightFarOut) {
  // Where tanh saturates and exp would overflow.
  const HostTensor x = {Shape{8}, DType::kF32, {-1000, -60, -12, -0.0, 0, 12, 60, 1000}};
  const auto y = run_op({"activation",
                         OpKind::kActivation,
                         ActivationAttrs{Nonlinearity::kGeluTanh, false},
                         {x},
                         {kMake},
                         {}});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[0].values[i], 0, 1e-20);
  for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(y[0].values[i], x.values[i]);
}

TEST_P(LayerOps, Dropout) {
  const HostTensor step = scalar(3, DType::kI64);
  for (const auto& [rows, cols] : {std::array<std::int64_t, 2>{1, 1}, {5, 7}, {33, 10}, {3, 601}}) {
    const DropoutAttrs attrs{0.25f, 11, 12, {100, 0, 3, 64}};
    const HostTensor x = random({rows, cols}, dtype(), 1),
                     addend = random({rows, cols}, dtype(), 2);
    for (const bool add : {false, true}) {
      const Tensors in = {x, step, add ? addend : none()};
      expect_op({"dropout", OpKind::kDropout, attrs, in, {kMake}, {}},
                {reference_dropout(in, attrs)}, tolerance(dtype()));
    }
  }
}

TEST(Dropout, DropsTheShareItShould) {
  const HostTensor ones = {Shape{100, 1000}, DType::kF32, std::vector<double>(100000, 1)};
  for (const float rate : {0.1f, 0.5f}) {
    const auto out = run_op({"dropout",
                             OpKind::kDropout,
                             DropoutAttrs{rate, 1, 2, {0, 100, 0, 1000}},
                             {ones, scalar(1, DType::kI64), none()},
                             {kMake},
                             {}});
    double kept = 0;
    for (const double value : out[0].values) kept += value > 0 ? 1 : 0;
    EXPECT_NEAR(kept / 1e5, 1 - static_cast<double>(rate), 0.006);  // four standard deviations
  }
}

TEST(Dropout, APartDrawsTheMaskOfTheWhole) {
  const HostTensor whole = {Shape{8, 12}, DType::kF32, std::vector<double>(96, 1)};
  const HostTensor part = {Shape{3, 5}, DType::kF32, std::vector<double>(15, 1)};
  const HostTensor step = scalar(1, DType::kI64);
  const auto run = [&](const HostTensor& x, GlobalIndex index) {
    return run_op({"dropout",
                   OpKind::kDropout,
                   DropoutAttrs{0.5f, 1, 2, index},
                   {x, step, none()},
                   {kMake},
                   {}})[0];
  };
  const HostTensor a = run(whole, {0, 8, 0, 12}), b = run(part, {4, 8, 6, 12});
  for (std::int64_t r = 0; r < 3; ++r) {
    for (std::int64_t c = 0; c < 5; ++c) EXPECT_EQ(b.at(r * 5 + c), a.at((4 + r) * 12 + 6 + c));
  }
}

TEST_P(LayerOps, Add) {
  for (const std::int64_t size : {1, 7, 40000}) {
    const HostTensor a = random({size}, dtype(), 1), b = random({size}, dtype(), 2);
    HostTensor expected = a;
    for (std::size_t i = 0; i < a.values.size(); ++i) expected.values[i] += b.values[i];
    expect_op({"add", OpKind::kAdd, NoAttrs{}, {a, b}, {kMake}, {}}, {expected},
              tolerance(dtype()));
  }
}

TEST_P(LayerOps, Zero) {
  const auto out =
      run_op({"zero", OpKind::kZero, NoAttrs{}, {}, {kMake}, {random({13}, dtype(), 1)}});
  EXPECT_EQ(out[0].values, std::vector<double>(13, 0));
}

TEST_P(LayerOps, Copy) {
  const HostTensor a = random({3, 1000003}, dtype(), 1);
  expect_op({"copy", OpKind::kCopy, NoAttrs{}, {a}, {kMake}, {}}, {a}, 0);
}

}  // namespace
}  // namespace quintet::testing
