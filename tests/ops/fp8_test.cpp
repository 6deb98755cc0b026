// Products in eight bits: the formats, by search through all their codes; operands made of bf16;
// and what is multiplied of them.
#include "base/fp8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/index.h"
#include "tests/ops/op_case.h"
#include "tests/ops/reference.h"

namespace quintet::testing {
namespace {

// The format's number nearest to x, the one with an even code if two are; written from the
// definition, in double.
template <class F>
double nearest(double x) {
  x = std::clamp(x, -std::ldexp(1.75, F::kLargestExponent), std::ldexp(1.75, F::kLargestExponent));
  double best = std::numeric_limits<double>::infinity();
  int best_code = 0;
  for (int code = 0; code < 128; ++code) {
    const auto value = static_cast<double>(F::decode(static_cast<std::uint8_t>(code)));
    if (!std::isfinite(value)) continue;
    const double off = std::abs(std::abs(x) - value);
    if (off < best || (off == best && code % 2 == 0)) {
      best = off;
      best_code = code;
    }
  }
  return std::copysign(static_cast<double>(F::decode(static_cast<std::uint8_t>(best_code))), x);
}

template <class F>
class Fp8Format : public ::testing::Test {};
using Formats = ::testing::Types<e4m3, e5m2>;
TYPED_TEST_SUITE(Fp8Format, Formats);

TYPED_TEST(Fp8Format, IsWhatItsBitsSay) {
  constexpr int kFraction = TypeParam::kFraction, kBias = TypeParam::kBias;
  double largest = 0;
  for (int code = 0; code < 256; ++code) {
    const float value = TypeParam::decode(static_cast<std::uint8_t>(code));
    if (!std::isfinite(value)) continue;
    const int exponent = (code & 0x7f) >> kFraction, fraction = code & ((1 << kFraction) - 1);
    const double expected =
        exponent == 0 ? std::ldexp(fraction, 1 - kBias - kFraction)
                      : std::ldexp((1 << kFraction) + fraction, exponent - kBias - kFraction);
    EXPECT_EQ(static_cast<double>(value), code < 128 ? expected : -expected) << code;
    EXPECT_EQ(TypeParam::encode(value), code);
    largest = std::max(largest, expected);
  }
  EXPECT_EQ(largest, std::ldexp(1.75, TypeParam::kLargestExponent));
  EXPECT_TRUE(std::isnan(TypeParam::decode(TypeParam::encode(std::nanf("")))));
}

TYPED_TEST(Fp8Format, RoundsEveryBf16ToTheNearest) {
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float x = std::bit_cast<float>(bits << 16);
    ASSERT_EQ(static_cast<double>(static_cast<float>(TypeParam(x))),
              nearest<TypeParam>(static_cast<double>(x)))
        << x;
    ASSERT_EQ(static_cast<double>(static_cast<float>(TypeParam(-x))),
              nearest<TypeParam>(-static_cast<double>(x)));
  }
}

TYPED_TEST(Fp8Format, AUnitJustReachesTheLargest) {
  const double most = std::ldexp(1.75, TypeParam::kLargestExponent);
  float below = fp8_unit(0, TypeParam::kLargestExponent);
  EXPECT_EQ(below, 0x1p-126f);
  for (std::uint32_t bits = 1; bits < 0x7f80; ++bits) {
    const float largest = std::bit_cast<float>(bits << 16);
    const float unit = fp8_unit(std::bit_cast<std::uint32_t>(largest), TypeParam::kLargestExponent);
    ASSERT_GE(unit, below);  // the unit of a whole is the largest of its parts' units
    below = unit;
    if (bits < 0x1000) continue;  // there are no smaller units
    int exponent = 0;
    ASSERT_EQ(std::frexp(unit, &exponent), 0.5f);
    ASSERT_EQ(unit * fp8_scale(unit), 1.0f);
    const double scaled = static_cast<double>(largest) / static_cast<double>(unit);
    ASSERT_LE(scaled, most);
    ASSERT_GT(scaled, most / 2);
  }
}

class Quantize : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, Quantize, ::testing::Values(DType::kE4M3, DType::kE5M2),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Quantize, RoundsScalesAndTurns) {
  const DType format = GetParam();
  for (const auto& [rows, cols, size] : {std::tuple<std::int64_t, std::int64_t, double>{16, 16, 1},
                                         {128, 64, 1e-6},
                                         {144, 80, 1e6},
                                         {272, 208, 1e-30},
                                         {1040, 528, 3}}) {
    HostTensor x = random({rows, cols}, DType::kBF16, 1, size);
    x.at(rows * cols / 3) *= 64;  // one that sets the scale, far out
    const auto expected = with_fp8_type(format, [&]<class F>(F) {
      double largest = 0;
      for (const double value : x.values) largest = std::max(largest, std::abs(value));
      const double unit = std::exp2(std::ceil(std::log2(largest / 1.75)) - F::kLargestExponent);
      std::vector<HostTensor> out = {
          {x.shape, format, x.values}, {{cols, rows}, format, x.values}, scalar(unit)};
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < cols; ++c) {
          const double code = nearest<F>(x.at(r * cols + c) / unit);
          out[0].at(r * cols + c) = out[1].at(c * rows + r) = code;
        }
      }
      return out;
    });
    const OpCase both{"quantize", OpKind::kQuantize,     QuantizeAttrs{format},
                      {x},        {kMake, kMake, kMake}, {}};
    expect_op(both, expected, 0);
    OpCase one = both;
    one.outputs = {kMake, kSkip, kMake};
    expect_op(one, {expected[0], none(), expected[2]}, 0);
    one.inputs = {x, none(),
                  integers({quantize::kSlots}, std::vector<double>(quantize::kSlots, 0))};
    double largest = 0;
    for (const double value : x.values) largest = std::max(largest, std::abs(value));
    one.inputs[quantize::kLargest].at(200) =
        std::bit_cast<std::int32_t>(static_cast<float>(largest));
    expect_op(one, {expected[0], none(), expected[2]}, 0);
    one.inputs = {x};
    one.outputs = {kSkip, kMake};
    one.inputs.push_back(expected[2]);
    expect_op(one, {none(), expected[1]}, 0);
  }
}

TEST_P(Quantize, ZerosAndWhatIsNotFinite) {
  HostTensor x = random({32, 48}, DType::kBF16, 1, 0);
  const OpCase c{"quantize", OpKind::kQuantize,     QuantizeAttrs{GetParam()},
                 {x},        {kMake, kMake, kMake}, {}};
  for (const HostTensor& out : {run_op(c)[0], run_op(c)[1]})
    for (const double value : out.values) EXPECT_EQ(value, 0);
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    OpCase with = c;
    with.inputs[0].at(77) = bad;
    EXPECT_FALSE(std::isfinite(run_op(with)[quantize::kUnit].at(0))) << bad;
  }
}

// One op for many matrices makes of each what quantize makes of it alone, bit for bit.
class QuantizeWeights : public ::testing::TestWithParam<DType> {
 protected:
  static OpCase together(const std::vector<HostTensor>& matrices,
                         std::vector<int> outputs_of_each) {
    OpCase c{"quantize_weights", OpKind::kQuantizeWeights, QuantizeAttrs{GetParam()}, {}, {}, {}};
    for (const HostTensor& x : matrices) {
      c.inputs.insert(c.inputs.end(), {x, none()});
      c.outputs.insert(c.outputs.end(), outputs_of_each.begin(), outputs_of_each.end());
    }
    return c;
  }
  static std::vector<HostTensor> alone(const HostTensor& x) {
    return run_op(
        {"quantize", OpKind::kQuantize, QuantizeAttrs{GetParam()}, {x}, {kMake, kMake, kMake}, {}});
  }
};
INSTANTIATE_TEST_SUITE_P(All, QuantizeWeights, ::testing::Values(DType::kE4M3, DType::kE5M2),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(QuantizeWeights, AreEachAsIfAlone) {
  namespace qw = quantize_weights;
  // More than a GPU takes in one launch; smaller than a tile, larger than one, cut by its edges.
  std::vector<HostTensor> matrices;
  for (std::int64_t i = 0; i < 19; ++i) {
    matrices.push_back(random({16 * (1 + i * 7 % 23), 16 * (1 + i * 5 % 17)}, DType::kBF16,
                              static_cast<std::uint64_t>(i),
                              std::exp2(3 * static_cast<double>(i % 7) - 12)));
  }
  matrices[4] = random({16, 16}, DType::kBF16, 4, 0);  // nothing but zeros
  for (const std::size_t count : {std::size_t{1}, std::size_t{7}, matrices.size()}) {
    const std::vector<HostTensor> some(matrices.begin(),
                                       matrices.begin() + static_cast<std::ptrdiff_t>(count));
    const auto codes = run_op(together(some, {kMake, kSkip, kMake}));
    const auto all = run_op(together(some, {kMake, kMake, kMake}));
    OpCase turned = together(some, {kSkip, kMake, kSkip});
    for (int i = 0; i < static_cast<int>(count); ++i)
      turned.inputs[index(qw::in(i, qw::kKnownUnit))] = all[index(qw::out(i, quantize::kUnit))];
    const auto transposed = run_op(turned);
    for (int i = 0; i < static_cast<int>(count); ++i) {
      const auto expected = alone(some[index(i)]);
      const auto same = [&](const std::vector<HostTensor>& results, quantize::Outputs slot) {
        EXPECT_EQ(results[index(qw::out(i, slot))].values, expected[slot].values)
            << "matrix " << i << " of " << count << ", result " << slot;
      };
      same(codes, quantize::kCodes);
      same(codes, quantize::kUnit);
      same(all, quantize::kCodes);
      same(all, quantize::kTransposed);
      same(all, quantize::kUnit);
      same(transposed, quantize::kTransposed);
    }
  }
}

TEST_P(QuantizeWeights, WhatIsNotFiniteStaysWithItsMatrix) {
  namespace qw = quantize_weights;
  std::vector<HostTensor> matrices;
  for (std::uint64_t i = 0; i < 3; ++i) matrices.push_back(random({48, 80}, DType::kBF16, i));
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    matrices[1].at(777) = bad;
    const auto out = run_op(together(matrices, {kMake, kSkip, kMake}));
    EXPECT_FALSE(std::isfinite(out[index(qw::out(1, quantize::kUnit))].at(0))) << bad;
    for (const int i : {0, 2}) {
      const auto expected = alone(matrices[index(i)]);
      EXPECT_EQ(out[index(qw::out(i, quantize::kUnit))].values, expected[quantize::kUnit].values);
      EXPECT_EQ(out[index(qw::out(i, quantize::kCodes))].values, expected[quantize::kCodes].values);
    }
  }
}

// Ranks that have parts of a matrix find its unit together, and make together the codes that one of
// them would make alone.
TEST_P(QuantizeWeights, RunsMakeWhatTheirMatrixMakes) {
  namespace qw = quantize_weights;
  std::vector<HostTensor> runs;
  std::vector<std::vector<HostTensor>> expected;  // by matrix
  std::vector<std::size_t> matrix_of;             // by run
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{48, 80}, {16, 16}, {272, 208}, {64, 1040}}) {
    HostTensor x = random({rows, cols}, DType::kBF16, static_cast<std::uint64_t>(rows), 1e-3);
    if (rows == 64) std::fill(x.values.begin(), x.values.begin() + 5000, 0.0);
    expected.push_back(alone(x));
    std::int64_t begin = 0;
    for (std::int64_t size : {8, 40, 1000, 2048, 3000, 20000, 1 << 20}) {
      size = std::min(size, rows * cols - begin);
      if (size == 0) break;
      const auto first = x.values.begin() + begin;
      runs.push_back({{size}, DType::kBF16, {first, first + size}});
      matrix_of.push_back(expected.size() - 1);
      begin += size;
    }
  }
  ASSERT_GT(runs.size(), 16U);  // more than a GPU takes in one launch
  const auto units = run_op(together(runs, {kSkip, kSkip, kMake}));
  std::vector<double> largest(expected.size(), 0);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    double& so_far = largest[matrix_of[i]];
    so_far = std::max(so_far, units[i * qw::kOutputs + quantize::kUnit].at(0));
  }
  for (std::size_t m = 0; m < expected.size(); ++m)
    EXPECT_EQ(largest[m], expected[m][quantize::kUnit].at(0)) << "matrix " << m;

  OpCase codes = together(runs, {kMake, kSkip, kSkip});
  for (std::size_t i = 0; i < runs.size(); ++i)
    codes.inputs[i * qw::kInputs + qw::kKnownUnit] = scalar(largest[matrix_of[i]]);
  const auto made = run_op(codes);
  std::vector<HostTensor> joined;
  for (const auto& matrix : expected)
    joined.push_back({matrix[quantize::kCodes].shape, GetParam(), {}});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::vector<double>& part = made[i * qw::kOutputs + quantize::kCodes].values;
    std::vector<double>& whole = joined[matrix_of[i]].values;
    whole.insert(whole.end(), part.begin(), part.end());
  }
  // What was gathered is turned.
  OpCase turned = together(joined, {kSkip, kMake, kSkip});
  for (std::size_t m = 0; m < expected.size(); ++m)
    turned.inputs[m * qw::kInputs + qw::kKnownUnit] = scalar(largest[m]);
  const auto transposed = run_op(turned);
  for (std::size_t m = 0; m < expected.size(); ++m) {
    EXPECT_EQ(joined[m].values, expected[m][quantize::kCodes].values) << "matrix " << m;
    EXPECT_EQ(transposed[m * qw::kOutputs + quantize::kTransposed].values,
              expected[m][quantize::kTransposed].values)
        << "matrix " << m;
  }
}

// More than a GPU takes in one launch, smaller than a tile and cut by its edges.
TEST_P(QuantizeWeights, CodesAreTurnedAsTheyAre) {
  namespace qw = quantize_weights;
  std::vector<HostTensor> matrices;
  for (std::int64_t i = 0; i < 18; ++i)
    matrices.push_back(random({16 * (1 + i * 7 % 23), 16 * (1 + i * 5 % 17)}, GetParam(),
                              static_cast<std::uint64_t>(i), 20));
  OpCase c = together(matrices, {kSkip, kMake, kSkip});
  for (std::size_t i = 0; i < matrices.size(); ++i)
    c.inputs[i * qw::kInputs + qw::kKnownUnit] = scalar(0x1p-20);
  const auto transposed = run_op(c);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const HostTensor &x = matrices[i], &t = transposed[i * qw::kOutputs + quantize::kTransposed];
    const std::int64_t rows = x.shape.rows(), cols = x.shape.cols();
    std::int64_t wrong = 0;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < cols; ++k) wrong += t.at(k * rows + r) != x.at(r * cols + k);
    EXPECT_EQ(wrong, 0) << "matrix " << i;
  }
}

// What norms and activations leave beside their results is what a look at those finds; attention:
// attention_test.cpp.
TEST(Largest, IsThatOfTheResult) {
  const auto check = [](const OpCase& c, int largest) {
    expect_largest(c, {{0, largest}}, 0, c.inputs[0].shape.numel() / 2);
  };
  constexpr DType kType = DType::kBF16;
  for (const auto& [rows, d] :
       {std::pair<std::int64_t, std::int64_t>{48, 32}, {1, 7}, {300, 768}, {260, 2048}}) {
    const HostTensor x = random({rows, d}, kType, 1), w = random({d}, kType, 2),
                     dy = random({rows, d}, kType, 3, 1e-4), rstd = random({rows}, DType::kF32, 4);
    check({"rms_norm", OpKind::kRmsNorm, RmsNormAttrs{}, {x, w}, {kMake, kMake}, {}},
          rms_norm::kLargest);
    check({"rms_norm_backward",
           OpKind::kRmsNormBackward,
           RmsNormAttrs{},
           {dy, x, w, rstd, none(), none()},
           {kMake, kMake},
           {}},
          rms_norm_backward::kLargest);
    const HostTensor h = random({rows, 2 * d}, kType, 5);
    const ActivationAttrs gated{Nonlinearity::kGeluTanh, true};
    check({"activation", OpKind::kActivation, gated, {h}, {kMake}, {}}, activation::kLargest);
    check({"activation_backward", OpKind::kActivationBackward, gated, {dy, h}, {kMake}, {}},
          activation_backward::kLargest);
  }
}

// What a case's op leaves instead of its result, with a guess at the unit.
OpCase leaving_codes(OpCase c, DType format, int codes, int transposed, float guess) {
  const quantize::AtSource& slots = *quantize::at_source(c.kind);
  const HostTensor result = run_op(c)[index(slots.result)];
  c.inputs.resize(index(slots.guess), none());
  c.inputs.push_back(integers({quantize::kGuessWords},
                              {static_cast<double>(std::bit_cast<std::int32_t>(guess)), 7}));
  c.outputs.resize(index(slots.codes), kSkip);
  c.outputs[index(slots.result)] = c.outputs[index(slots.largest)] = kSkip;
  c.outputs.insert(c.outputs.end(), {codes, transposed, kMake, slots.guess});
  c.output_like.assign(c.outputs.size(), none());
  if (codes == kMake) c.output_like[index(slots.codes)] = {result.shape, format, {}};
  if (transposed == kMake) {
    c.output_like[index(slots.codes + quantize::kTransposed)] = {
        {result.shape.cols(), result.shape.rows()}, format, {}};
  }
  return c;
}

// They are those that quantize makes of the result, to the bit, whatever the guess; other results
// stay as they are.
void expect_codes_at_source(const OpCase& c, DType format) {
  const quantize::AtSource& slots = *quantize::at_source(c.kind);
  const auto plain = run_op(c);
  const auto expected = run_op({"quantize",
                                OpKind::kQuantize,
                                QuantizeAttrs{format},
                                {plain[index(slots.result)]},
                                {kMake, kMake, kMake},
                                {}});
  const auto unit = static_cast<float>(expected[quantize::kUnit].at(0));
  for (const float guess : {unit, unit * 0.125f, 0.0f, INFINITY}) {
    for (const auto& [codes, transposed] :
         {std::pair{kMake, kMake}, {kMake, kSkip}, {kSkip, kMake}}) {
      if (guess == 0 && (codes == kSkip || transposed == kSkip)) continue;  // as any wrong guess
      const auto out = run_op(leaving_codes(c, format, codes, transposed, guess));
      for (const int slot : {quantize::kCodes, quantize::kTransposed, quantize::kUnit}) {
        const HostTensor& made = out[index(slots.codes + slot)];
        EXPECT_TRUE(made.absent || made.values == expected[index(slot)].values)
            << c.name << " " << c.inputs[0].shape.str() << ", guess " << guess << ", result "
            << slot;
      }
      for (std::size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(static_cast<int>(i) == slots.result || out[i].values == plain[i].values)
            << c.name << ", result " << i;
      }
      if (kTestDevice == Device::kCuda) {  // which will guess better the next time
        EXPECT_EQ(out.back().at(0), static_cast<double>(std::bit_cast<std::int32_t>(unit)));
      }
    }
  }
}

TEST(CodesAtSource, OfActivations) {
  for (const auto& [rows, f] :
       {std::pair<std::int64_t, std::int64_t>{16, 16}, {144, 400}, {272, 208}}) {
    for (const auto& [function, gated, format] :
         {std::tuple{Nonlinearity::kGeluTanh, true, DType::kE4M3},
          {Nonlinearity::kGeluTanh, false, DType::kE5M2},
          {Nonlinearity::kRelu, true, DType::kE5M2},
          {Nonlinearity::kRelu, false, DType::kE4M3}}) {
      const std::int64_t width = gated ? 2 * f : f;
      HostTensor h = random({rows, width}, DType::kBF16, 1, 2);
      h.at(rows * width / 3) = 40;  // one that sets the scale
      const HostTensor dy = random({rows, f}, DType::kBF16, 2, 1e-4);
      const ActivationAttrs attrs{function, gated};
      expect_codes_at_source({"activation", OpKind::kActivation, attrs, {h}, {kMake}, {}}, format);
      expect_codes_at_source(
          {"activation_backward", OpKind::kActivationBackward, attrs, {dy, h}, {kMake}, {}},
          format);
    }
  }
}

TEST(CodesAtSource, OfNorms) {
  for (const auto& [rows, d] : {std::pair<std::int64_t, std::int64_t>{16, 16},
                                {48, 512},
                                {144, 768},
                                {272, 1024},
                                {48, 2048},
                                {16, 4096},
                                {16, 16384}}) {
    HostTensor x = random({rows, d}, DType::kBF16, 1, 3);
    x.at(rows * d / 3) *= 64;
    const HostTensor w = random({d}, DType::kBF16, 2);
    for (const DType format : {DType::kE4M3, DType::kE5M2}) {
      expect_codes_at_source(
          {"rms_norm", OpKind::kRmsNorm, RmsNormAttrs{}, {x, w}, {kMake, kMake}, {}}, format);
    }
  }
}

TEST(CodesAtSource, OfWhatIsNotFiniteSaySo) {
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    HostTensor x = random({32, 96}, DType::kBF16, 1);
    x.at(777) = bad;
    for (const OpCase& c :
         {OpCase{"activation", OpKind::kActivation, ActivationAttrs{}, {x}, {kMake}, {}},
          OpCase{"rms_norm",
                 OpKind::kRmsNorm,
                 RmsNormAttrs{},
                 {x, random({96}, DType::kBF16, 2)},
                 {kMake, kMake},
                 {}}}) {
      const int unit = quantize::at_source(c.kind)->codes + quantize::kUnit;
      const auto out = run_op(leaving_codes(c, DType::kE4M3, kMake, kMake, 1));
      EXPECT_FALSE(std::isfinite(out[index(unit)].at(0))) << c.name << ", " << bad;
    }
  }
}

// Sums of eight-bit products are kept in float32, on a GPU by the matrix units' own, coarser way.
constexpr double kSumTolerance = kTestDevice == Device::kCuda ? 1e-3 : 1e-5;

// The unit of zeros is the least there is, and no product of units is needed to be a number's.
TEST(Fp8Matmul, OfZerosIsZero) {
  const auto zeros = run_op({"quantize",
                             OpKind::kQuantize,
                             QuantizeAttrs{},
                             {random({32, 48}, DType::kBF16, 1, 0)},
                             {kMake, kSkip, kMake},
                             {}});
  const HostTensor &codes = zeros[quantize::kCodes], &unit = zeros[quantize::kUnit];
  const HostTensor others = random({16, 48}, DType::kE4M3, 2, 20);
  for (const auto& [b, unit_b] :
       {std::pair{others, scalar(0x1p+3)}, {others, unit}, {codes, unit}}) {
    const OpCase c{"matmul",
                   OpKind::kMatmul,
                   MatmulAttrs{false, true},
                   {codes, b, none(), unit, unit_b},
                   {kMake},
                   {{Shape{32, b.shape.rows()}, DType::kBF16, {}}}};
    const auto product = run_op(c);
    for (const double value : product[0].values) EXPECT_EQ(value, 0);
  }
}

TEST(Fp8Matmul, MultipliesCodesAndUnits) {
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{16, 16, 16}, {48, 80, 32}, {272, 144, 208}}) {
    for (const auto& [format_a, format_b] :
         {std::pair{DType::kE4M3, DType::kE4M3}, {DType::kE5M2, DType::kE4M3}}) {
      const HostTensor a = random({m, k}, format_a, 1, 20), b = random({n, k}, format_b, 2, 20);
      const double unit_a = 0x1p-12, unit_b = 0x1p+3;
      const MatmulAttrs attrs{false, true};
      HostTensor expected = reference_matmul({a, b, none()}, attrs);
      for (double& value : expected.values) value *= unit_a * unit_b;
      for (const DType out : {DType::kBF16, DType::kF32}) {
        const HostTensor addend = random({m, n}, out, 3);
        HostTensor sum = expected;
        for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += addend.values[i];
        const double bound = out == DType::kF32 ? kSumTolerance : tolerance(out);
        const std::vector<HostTensor> in = {a, b, none(), scalar(unit_a), scalar(unit_b)};
        OpCase c{"matmul", OpKind::kMatmul, attrs, in, {kMake}, {addend}};
        expect_op(c, {expected}, bound);
        // In place or not, a GPU's library may add in another way: both are right, to the bound.
        c.inputs[matmul::kAddend] = addend;
        for (const int output : {kMake, int{matmul::kAddend}}) {
          c.outputs = {output};
          EXPECT_LE(relative_error(run_op(c)[0], sum), bound);
          EXPECT_EQ(run_op(c)[0].values, run_op(c)[0].values);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quintet::testing
