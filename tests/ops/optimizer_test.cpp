// The ops of the update: norm, clipping, AdamW, Adafactor, each against float64 formulas.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/moments.h"
#include "base/remainder.h"
#include "tests/ops/op_case.h"

namespace quintet::testing {
namespace {

TEST(SquaredNorm, AddsUp) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t size : {1, 7, 4097, 300001}) {
      const HostTensor x = random({size}, dtype, 1);
      expect_op({"squared_norm", OpKind::kSquaredNorm, NoAttrs{}, {x}, {kMake}, {}},
                {scalar(dot(x, x))}, 1e-6);
    }
  }
}

TEST(UpdateScale, ClipsAndPoisons) {
  const auto run = [](std::vector<double> squares, float clip) {
    const auto size = static_cast<std::int64_t>(squares.size());
    return run_op({"update_scale",
                   OpKind::kUpdateScale,
                   UpdateScaleAttrs{clip},
                   {{Shape{size}, DType::kF32, std::move(squares)}},
                   {kMake, kMake},
                   {}});
  };
  auto out = run({9, 16}, 1);
  EXPECT_NEAR(out[0].at(0), 5, 1e-6);
  EXPECT_NEAR(out[1].at(0), 0.2, 1e-6);
  EXPECT_EQ(run({0.01, 0.02}, 1)[1].at(0), 1);
  EXPECT_EQ(run({9, 16}, 0)[1].at(0), 1);
  for (const double bad : std::vector<double>{INFINITY, NAN}) {
    EXPECT_TRUE(std::isnan(run({1, bad}, 1)[1].at(0)));
    EXPECT_TRUE(std::isnan(run({1, bad}, 0)[1].at(0)));
  }
}

TEST(UpdateScale, LeavesStepsAboveTheLimitsAlone) {
  const auto scale = [](double loss, double loss_limit, double norm_limit) {
    return run_op({"update_scale",
                   OpKind::kUpdateScale,
                   UpdateScaleAttrs{1},
                   {{Shape{2}, DType::kF32, {9, 16}},
                    {Shape{2}, DType::kF32, {loss, 7}},
                    {Shape{2}, DType::kF32, {loss_limit, norm_limit}}},
                   {kMake, kMake},
                   {}})[1]
        .at(0);
  };
  EXPECT_NEAR(scale(3, 3, 5), 0.2, 1e-6);
  EXPECT_NEAR(scale(3, INFINITY, INFINITY), 0.2, 1e-6);
  EXPECT_TRUE(std::isnan(scale(3.001, 3, 5)));
  EXPECT_TRUE(std::isnan(scale(3, 3, 4.999)));
  EXPECT_TRUE(std::isnan(scale(NAN, INFINITY, INFINITY)));
  EXPECT_TRUE(std::isnan(scale(INFINITY, INFINITY, INFINITY)));
}

class AdamWTest : public ::testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(AdamWTest, MatchesTheFormula) {
  const auto [grad_dtype, working] = GetParam();
  AdamWAttrs attrs{0.9f, 0.99f, 1e-8f, 0.1f};
  for (const std::int64_t size : {1, 9, 5003}) {
    attrs.rate_scale = size == 9 ? 0.3f : 1.0f;
    for (const std::int64_t step : {1, 7, 100000}) {
      const HostTensor grad = random({size}, grad_dtype, 1);
      const HostTensor w = random({size}, DType::kF32, 2), m = random({size}, DType::kF32, 3, 0.1);
      HostTensor v = random({size}, DType::kF32, 4, 0.1);
      for (double& value : v.values) value = std::abs(value);
      const double scale = 0.5, rate = 0.01;
      HostTensor new_w = w, new_m = m, new_v = v;
      for (std::size_t i = 0; i < w.values.size(); ++i) {
        const double g = grad.values[i] * scale;
        const double b1 = static_cast<double>(attrs.beta1), b2 = static_cast<double>(attrs.beta2);
        new_m.values[i] = b1 * m.values[i] + (1 - b1) * g;
        new_v.values[i] = b2 * v.values[i] + (1 - b2) * g * g;
        const double m_hat = new_m.values[i] / (1 - std::pow(b1, step));
        const double v_hat = new_v.values[i] / (1 - std::pow(b2, step));
        new_w.values[i] =
            w.values[i] * (1 - rate * 0.1) -
            rate * static_cast<double>(attrs.rate_scale) * m_hat / (std::sqrt(v_hat) + 1e-8);
      }
      OpCase c{"adamw",
               OpKind::kAdamW,
               attrs,
               {grad, scalar(scale), scalar(rate), scalar(static_cast<double>(step), DType::kI64),
                w, m, v},
               {adamw::kMaster, adamw::kM, adamw::kV, working ? kMake : kSkip},
               {}};
      const auto out = run_op(c);
      EXPECT_LE(relative_error(out[0], new_w), 1e-6);
      EXPECT_LE(relative_error(out[1], new_m), 1e-6);
      EXPECT_LE(relative_error(out[2], new_v), 1e-6);
      if (working) {
        for (std::size_t i = 0; i < w.values.size(); ++i) {
          EXPECT_EQ(
              out[3].values[i],
              static_cast<double>(static_cast<float>(bf16(static_cast<float>(out[0].values[i])))));
        }
      }
      // A running mean rides along and changes nothing else.
      AdamWAttrs with_mean = attrs;
      with_mean.ema = 0.75f;
      c.attrs = with_mean;
      const HostTensor mean = random(w.shape, DType::kF32, 77);
      HostTensor new_mean = mean;
      for (std::size_t i = 0; i < mean.values.size(); ++i)
        new_mean.values[i] = 0.75 * mean.values[i] + 0.25 * new_w.values[i];
      c.inputs.resize(adamw::kEma, none());
      c.inputs.push_back(mean);
      c.outputs.push_back(adamw::kEma);
      const auto meant = run_op(c);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(meant[i].values, out[i].values);
      EXPECT_LE(relative_error(meant[adamw::kEmaOut], new_mean), 1e-6);
      // A scale that is no number leaves everything as it was.
      c.inputs[adamw::kScale] = scalar(NAN);
      const auto untouched = run_op(c);
      EXPECT_EQ(untouched[adamw::kEmaOut].values, mean.values);
      EXPECT_EQ(untouched[0].values, w.values);
      EXPECT_EQ(untouched[1].values, m.values);
      EXPECT_EQ(untouched[2].values, v.values);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, AdamWTest,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Bool()));

// Moments that are not float32: they are read exactly, the weights come from what was computed and
// not from what is kept of it, and each element is rounded by the random bits of its place.
class SmallMoments : public ::testing::TestWithParam<std::tuple<DType, DType>> {
 protected:
  // A moment as it is kept: values, or codes and scales; made to have blocks of all sizes.
  struct Kept {
    HostTensor values, scales = none();
  };
  static Kept moment(std::int64_t size, DType kept, bool first) {
    const HostTensor normal = random({size}, DType::kBF16, first ? 3 : 4, 0.1);
    Kept k{{Shape{size}, kept, normal.values}};
    if (!first)
      for (double& value : k.values.values) value *= value;
    if (kept == DType::kBF16) {
      for (double& value : k.values.values)
        value = static_cast<double>(static_cast<float>(bf16(static_cast<float>(value))));
      return k;
    }
    for (std::size_t i = 0; i < k.values.values.size(); ++i)
      k.values.values[i] = static_cast<double>((i * 37) % 256);
    k.scales = {Shape{moment_blocks(size)}, DType::kF32, {}};
    for (std::int64_t b = 0; b < moment_blocks(size); ++b)
      k.scales.values.push_back(b == 1 ? 0 : std::ldexp(1, static_cast<int>(-b % 20)));
    return k;
  }
  // What a code stands for, as base/moments.h says it.
  static double value_of(double code, double scale, bool first) {
    const int c = static_cast<int>(code), magnitude = first ? c % 128 : c, e = first ? 14 : 30;
    const double value = magnitude < 8
                             ? magnitude / 8.0 * std::ldexp(1, -e)
                             : (1 + magnitude % 8 / 8.0) * std::ldexp(1, magnitude / 8 - 1 - e);
    return scale * (first && c >= 128 ? -value : value);
  }
  static std::vector<double> values_of(const HostTensor& kept, const HostTensor& scales,
                                       bool first) {
    std::vector<double> values = kept.values;
    if (kept.dtype == DType::kU8) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = value_of(values[i], scales.values[i / kMomentBlock], first);
    }
    return values;
  }
  // One of the two values around x that can be kept: that away from zero where `random`, of 2^16,
  // falls into the share of the way there.
  static double rounded(double x, DType kept, double scale, bool first, std::uint32_t random) {
    const double size = std::abs(x);
    if (size == 0 || (kept == DType::kU8 && scale == 0)) return 0;
    double step = std::exp2(std::floor(std::log2(size)) - (kept == DType::kU8 ? 3 : 7));
    if (kept == DType::kU8) step = std::max(step, scale * std::ldexp(1, first ? -17 : -33));
    const double below = std::floor(size / step) * step;
    double kept_size = (size - below) / step * 65536 + random >= 65536 ? below + step : below;
    if (kept_size == 0 && !first) kept_size = step;
    return x < 0 ? -kept_size : kept_size;
  }
};

TEST_P(SmallMoments, AreReadExactlyAndRoundedByPlace) {
  const auto [grad_dtype, kept] = GetParam();
  for (const std::int64_t size : {1, 255, 256, 5003, 40000}) {
    for (const std::int64_t apart : {0, 13}) {
      AdamWAttrs attrs{0.9f, 0.999f, 1e-8f, 0.1f};
      attrs.place = {.seed = 5, .site = 99, .first = 30, .cols = 7, .apart = apart, .origin = 1234};
      const std::int64_t step = 7;
      const HostTensor grad = random({size}, grad_dtype, 1), w = random({size}, DType::kF32, 2);
      const Kept m = moment(size, kept, true), v = moment(size, kept, false);
      OpCase c{"adamw",
               OpKind::kAdamW,
               attrs,
               {grad, scalar(0.5), scalar(0.01), scalar(static_cast<double>(step), DType::kI64), w,
                m.values, v.values, none(), none(), m.scales, v.scales},
               {adamw::kMaster, adamw::kM, adamw::kV, kSkip, kSkip,
                m.scales.absent ? kSkip : int{adamw::kMScales},
                v.scales.absent ? kSkip : int{adamw::kVScales}},
               {}};
      const auto out = run_op(c);
      const auto m_in = values_of(m.values, m.scales, true),
                 v_in = values_of(v.values, v.scales, false);
      const auto m_out = values_of(out[adamw::kMOut], out[adamw::kMScalesOut], true),
                 v_out = values_of(out[adamw::kVOut], out[adamw::kVScalesOut], false);
      HostTensor new_w = w;
      std::int64_t otherwise = 0;
      for (std::size_t i = 0; i < w.values.size(); ++i) {
        const double b1 = static_cast<double>(attrs.beta1), b2 = static_cast<double>(attrs.beta2);
        const double g = grad.values[i] * 0.5;
        const double new_m = b1 * m_in[i] + (1 - b1) * g, new_v = b2 * v_in[i] + (1 - b2) * g * g;
        const double root = std::sqrt(new_v / (1 - std::pow(b2, step)));
        new_w.values[i] = w.values[i] * (1 - 0.01 * static_cast<double>(attrs.weight_decay)) -
                          0.01 * new_m / (1 - std::pow(b1, step)) / (root + 1e-8);
        const std::int64_t p = 30 + static_cast<std::int64_t>(i);
        const auto element = static_cast<std::uint64_t>(1234 + p + p / 7 * apart);
        const std::uint32_t word =
            philox(5, 99 + static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15ull,
                   element / 4)[element % 4];
        const std::size_t block = i / kMomentBlock;
        const auto scale = [&](int output) {
          return kept == DType::kU8 ? out[static_cast<std::size_t>(output)].values[block] : 0;
        };
        const double m_step = 0.13 * std::abs(new_m) + scale(adamw::kMScalesOut) * 0x1p-17;
        const double v_step = 0.13 * new_v + scale(adamw::kVScalesOut) * 0x1p-33;
        EXPECT_NEAR(m_out[i], new_m, m_step);
        EXPECT_NEAR(v_out[i], new_v, v_step);
        // A float32 that differs in its last bit from the float64 may fall to the other side.
        const double m_want = rounded(new_m, kept, scale(adamw::kMScalesOut), true, word & 0xffff),
                     v_want = rounded(new_v, kept, scale(adamw::kVScalesOut), false, word >> 16);
        otherwise += std::abs(m_out[i] - m_want) > 1e-6 * std::abs(m_want) ||
                     std::abs(v_out[i] - v_want) > 1e-6 * v_want;
      }
      EXPECT_LE(relative_error(out[adamw::kMasterOut], new_w), 1e-6);
      EXPECT_LE(otherwise, size / 500) << size;
      // The same bits in two halves, whose elements have the same places.
      if (size % (2 * kMomentBlock) == 0 || size == 40000) {
        const std::int64_t cut = size / 2 / kMomentBlock * kMomentBlock;
        for (const auto& [first, last] : {std::pair{std::int64_t{0}, cut}, {cut, size}}) {
          OpCase part = c;
          const auto take = [f = first, l = last](HostTensor& t, std::int64_t each) {
            if (t.absent) return;
            t.values = {t.values.begin() + f / each, t.values.begin() + (l + each - 1) / each};
            t.shape = Shape{static_cast<std::int64_t>(t.values.size())};
          };
          for (const int slot : {adamw::kGrad, adamw::kMaster, adamw::kM, adamw::kV})
            take(part.inputs[static_cast<std::size_t>(slot)], 1);
          for (const int slot : {adamw::kMScales, adamw::kVScales})
            take(part.inputs[static_cast<std::size_t>(slot)], kMomentBlock);
          attrs.place.first = 30 + first;
          part.attrs = attrs;
          const auto halves = run_op(part);
          for (std::size_t o : {0, 1, 2}) {
            EXPECT_TRUE(std::equal(halves[o].values.begin(), halves[o].values.end(),
                                   out[o].values.begin() + first));
          }
        }
      }
      // A scale that is no number leaves everything as it was.
      c.inputs[adamw::kScale] = scalar(NAN);
      const auto untouched = run_op(c);
      EXPECT_EQ(untouched[adamw::kMOut].values, m.values.values);
      EXPECT_EQ(untouched[adamw::kVOut].values, v.values.values);
      if (kept == DType::kU8) {
        EXPECT_EQ(untouched[adamw::kVScalesOut].values, v.scales.values);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, SmallMoments,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Values(DType::kBF16, DType::kU8)));

// A second moment that grows by ever smaller parts of itself: rounded to the nearest it would stand
// still long before its end.
TEST(SmallMoments, FollowSlowChanges) {
  for (const DType kept : {DType::kBF16, DType::kU8}) {
    const std::int64_t size = 4096, blocks = moment_blocks(size);
    const auto number = static_cast<std::size_t>(size);
    const HostTensor grad{Shape{size}, DType::kF32, std::vector<double>(number, 1)};
    HostTensor w{Shape{size}, DType::kF32, std::vector<double>(number, 0)};
    HostTensor m{Shape{size}, kept, std::vector<double>(number, 0)}, v = m;
    HostTensor m_scales = none(), v_scales = none();
    if (kept == DType::kU8)
      m_scales = v_scales = {Shape{blocks}, DType::kF32,
                             std::vector<double>(static_cast<std::size_t>(blocks), 0)};
    AdamWAttrs attrs{0.9f, 0.999f, 1e-8f, 0};
    attrs.place = {.seed = 1, .site = 2};
    for (std::int64_t step = 1; step <= 300; ++step) {
      const int scales = kept == DType::kU8 ? int{adamw::kMScales} : kSkip;
      const auto out =
          run_op({"adamw",
                  OpKind::kAdamW,
                  attrs,
                  {grad, scalar(1), scalar(0.001), scalar(static_cast<double>(step), DType::kI64),
                   w, m, v, none(), none(), m_scales, v_scales},
                  {adamw::kMaster, adamw::kM, adamw::kV, kSkip, kSkip, scales,
                   kept == DType::kU8 ? int{adamw::kVScales} : kSkip},
                  {}});
      w = out[adamw::kMasterOut];
      m = out[adamw::kMOut];
      v = out[adamw::kVOut];
      if (kept == DType::kU8) {
        m_scales = out[adamw::kMScalesOut];
        v_scales = out[adamw::kVScalesOut];
      }
    }
    // Gradients of one: every step is a step of 0.001 down, and v is 1 - 0.999^300.
    double mean_w = 0, mean_v = 0;
    for (std::size_t i = 0; i < number; ++i) {
      mean_w += w.values[i] / static_cast<double>(size);
      const double value = kept == DType::kU8 ? static_cast<double>(SecondMoment::value(
                                                    static_cast<std::uint8_t>(v.values[i]),
                                                    static_cast<float>(v_scales.values[i / 256])))
                                              : v.values[i];
      mean_v += value / static_cast<double>(size);
    }
    EXPECT_NEAR(mean_v, 1 - std::pow(0.999, 300), 0.01);
    EXPECT_NEAR(mean_w, -0.3, 0.006);
  }
}

// Float32 weights as a bf16 working copy and remainders.
struct Halves {
  HostTensor high, low;
};
Halves split(const HostTensor& master) {
  Halves h{{master.shape, DType::kBF16, master.values}, {master.shape, DType::kI16, master.values}};
  for (std::size_t i = 0; i < master.values.size(); ++i) {
    const SplitFloat value(static_cast<float>(master.values[i]));
    EXPECT_EQ(static_cast<double>(static_cast<float>(value)), master.values[i]);
    h.high.values[i] = static_cast<double>(static_cast<float>(value.high));
    h.low.values[i] = value.low;
  }
  return h;
}
HostTensor join(const HostTensor& high, const HostTensor& low) {
  HostTensor master{high.shape, DType::kF32, high.values};
  for (std::size_t i = 0; i < high.values.size(); ++i) {
    const SplitFloat value(bf16(static_cast<float>(high.values[i])),
                           static_cast<std::int16_t>(low.values[i]));
    master.values[i] = static_cast<double>(static_cast<float>(value));
  }
  return master;
}

TEST(Remainder, IsExactForEveryKindOfNumber) {
  for (const float value : {0.0f, -0.0f, 1.0f, -1.0f, 0x1.008p0f, 0x1.018p0f, -0x1.008p0f, 1e-38f,
                            1e-45f, 3e38f, -3e38f, 0.1f, 0x1.00fffep0f, 0x1.010002p0f}) {
    const SplitFloat split(value);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(split)),
              std::bit_cast<std::uint32_t>(value));
    // The working copy is the nearest bf16.
    EXPECT_LE(std::abs(static_cast<float>(split.high) - value),
              std::abs(static_cast<float>(bf16(value)) - value));
  }
}

TEST(Remainder, UpdatesAreThoseOfWholeMasterWeights) {
  const std::int64_t size = 5003;
  const HostTensor grad = random({size}, DType::kBF16, 1), w = random({size}, DType::kF32, 2);
  const HostTensor m = random({size}, DType::kF32, 3, 0.1);
  HostTensor v = random({size}, DType::kF32, 4, 0.1);
  for (double& value : v.values) value = std::abs(value);
  const Halves halves = split(w);
  OpCase c{"adamw",
           OpKind::kAdamW,
           AdamWAttrs{0.9f, 0.99f, 1e-8f, 0.1f},
           {grad, scalar(0.5), scalar(0.01), scalar(7, DType::kI64), w, m, v, none()},
           {adamw::kMaster, adamw::kM, adamw::kV, kMake},
           {}};
  const auto whole = run_op(c);
  c.inputs[adamw::kMaster] = halves.low;
  c.inputs[adamw::kWorkingIn] = halves.high;
  c.outputs[adamw::kWorking] = adamw::kWorkingIn;
  const auto parts = run_op(c);
  EXPECT_EQ(join(parts[adamw::kWorking], parts[adamw::kMasterOut]).values,
            whole[adamw::kMasterOut].values);
  EXPECT_EQ(parts[adamw::kVOut].values, whole[adamw::kVOut].values);

  AdafactorAttrs attrs;
  AdafactorSegment segment;
  segment.end = size - 3;  // 5000 elements, the rest a gap
  segment.rows = segment.part_rows = 40;
  segment.cols = segment.part_cols = 125;
  segment.factored = true;
  attrs.segments = {segment};
  HostTensor factors = random({165}, DType::kF32, 5);
  for (double& value : factors.values) value = std::abs(value);
  const HostTensor squares = run_op({"rms",
                                     OpKind::kAdafactorRms,
                                     attrs,
                                     {grad, scalar(0.5), factors, halves.high},
                                     {kMake},
                                     {}})[0];
  // The weight's root mean square is that of its upper half, which is as good.
  double square = 0;
  for (std::int64_t i = 0; i < segment.end; ++i) square += w.at(i) * w.at(i);
  EXPECT_NEAR(squares.at(1), square, 1e-3 * square);
  OpCase apply{"apply",
               OpKind::kAdafactorApply,
               attrs,
               {grad, scalar(0.5), scalar(0.01), factors, squares, w, none()},
               {adafactor_apply::kMaster, kSkip},
               {}};
  const HostTensor applied = run_op(apply)[0];
  apply.inputs[adafactor_apply::kMaster] = halves.low;
  apply.inputs[adafactor_apply::kWorkingIn] = halves.high;
  apply.outputs[adafactor_apply::kWorking] = adafactor_apply::kWorkingIn;
  const auto applied_parts = run_op(apply);
  EXPECT_EQ(join(applied_parts[1], applied_parts[0]).values, applied.values);
}

// A weight of Adafactor in float64, whole.
struct Weight64 {
  std::int64_t rows, cols;
  bool factored;
  std::vector<double> w, row, col, v;

  void update(const std::vector<double>& g, double step, double lr, const AdafactorAttrs& a,
              const AdafactorSegment& s) {
    const double beta2 = 1 - std::pow(step, static_cast<double>(a.decay_rate));
    const double eps1 = static_cast<double>(a.epsilon1);
    const auto n = static_cast<double>(rows * cols);
    std::vector<double> u(g.size());
    if (factored) {
      for (std::int64_t r = 0; r < rows; ++r) {
        double mean = 0;
        for (std::int64_t c = 0; c < cols; ++c) mean += square(g, r * cols + c) + eps1;
        row[idx(r)] = beta2 * row[idx(r)] + (1 - beta2) * mean / static_cast<double>(cols);
      }
      for (std::int64_t c = 0; c < cols; ++c) {
        double mean = 0;
        for (std::int64_t r = 0; r < rows; ++r) mean += square(g, r * cols + c) + eps1;
        col[idx(c)] = beta2 * col[idx(c)] + (1 - beta2) * mean / static_cast<double>(rows);
      }
      double row_mean = 0;
      for (const double r : row) row_mean += r / static_cast<double>(rows);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        u[idx(i)] = g[idx(i)] / std::sqrt(row[idx(i / cols)] / row_mean * col[idx(i % cols)]);
      }
    } else {
      for (std::size_t i = 0; i < g.size(); ++i) {
        v[i] = beta2 * v[i] + (1 - beta2) * (g[i] * g[i] + eps1);
        u[i] = g[i] / std::sqrt(v[i]);
      }
    }
    double u_rms = 0, w_rms = 0;
    for (std::size_t i = 0; i < u.size(); ++i) {
      u_rms += u[i] * u[i] / n;
      w_rms += w[i] * w[i] / n;
    }
    const double clip = std::max(1.0, std::sqrt(u_rms) / static_cast<double>(a.clip_threshold));
    if (a.scale_parameter) lr *= std::max(static_cast<double>(a.epsilon2), std::sqrt(w_rms));
    const double step_size = lr * static_cast<double>(s.rate_scale) / clip;
    for (std::size_t i = 0; i < u.size(); ++i)
      w[i] = w[i] * (1 - lr * static_cast<double>(s.weight_decay)) - step_size * u[i];
  }
  static std::size_t idx(std::int64_t i) { return static_cast<std::size_t>(i); }
  static double square(const std::vector<double>& g, std::int64_t i) {
    return g[idx(i)] * g[idx(i)];
  }
};

TEST(Adafactor, FourOpsMakeTheUpdate) {
  for (const DType grad_dtype : {DType::kF32, DType::kBF16}) {
    AdafactorAttrs attrs;
    std::vector<Weight64> weights;
    std::int64_t size = 0, state_size = 0;
    for (const auto& [rows, cols, factored] :
         {std::tuple<std::int64_t, std::int64_t, bool>{1, 5, false},
          {3, 7, true},
          {40, 65, true},
          {1, 1, false}}) {
      weights.push_back({rows,
                         cols,
                         factored,
                         {},
                         std::vector<double>(static_cast<std::size_t>(rows), 0),
                         std::vector<double>(static_cast<std::size_t>(cols), 0),
                         std::vector<double>(static_cast<std::size_t>(rows * cols), 0)});
      size += 2;  // gaps between weights belong to none of them
      AdafactorSegment segment;
      segment.begin = size;
      segment.end = size + rows * cols;
      segment.rows = segment.part_rows = rows;
      segment.cols = segment.part_cols = cols;
      segment.factored = factored;
      segment.weight_decay = 0.05f * static_cast<float>(attrs.segments.size());
      segment.rate_scale = 1 / (1 + 0.5f * static_cast<float>(attrs.segments.size()));
      segment.state = state_size;
      segment.in_norm = attrs.segments.size() != 1;
      size = segment.end;
      state_size += segment.state_size();
      attrs.segments.push_back(segment);
    }
    HostTensor master = random({size}, DType::kF32, 1);
    for (std::size_t w = 0; w < weights.size(); ++w) {
      const auto& s = attrs.segments[w];
      weights[w].w.assign(master.values.begin() + s.begin, master.values.begin() + s.end);
    }
    HostTensor state = {Shape{state_size}, DType::kF32,
                        std::vector<double>(static_cast<std::size_t>(state_size), 0)};
    const double scale = 0.5, rate = 0.02;
    for (std::int64_t step = 1; step <= 5; ++step) {
      const HostTensor grad = random({size}, grad_dtype, 100 + static_cast<std::uint64_t>(step));
      const auto summed =
          run_op({"sums", OpKind::kAdafactorSums, attrs, {grad}, {kMake, kMake}, {}});
      const HostTensor& sums = summed[adafactor_sums::kSums];
      double total = 0;
      for (const AdafactorSegment& s : attrs.segments) {
        for (std::int64_t i = s.begin; s.in_norm && i < s.end; ++i)
          total += grad.at(i) * grad.at(i);
      }
      EXPECT_NEAR(summed[adafactor_sums::kSquare].at(0), total, 1e-6 * total);
      const auto moments =
          run_op({"moments",
                  OpKind::kAdafactorMoments,
                  attrs,
                  {sums, scalar(scale), scalar(static_cast<double>(step), DType::kI64), state},
                  {adafactor_moments::kState, kMake},
                  {}});
      state = moments[0];
      const HostTensor squares = run_op({"rms",
                                         OpKind::kAdafactorRms,
                                         attrs,
                                         {grad, scalar(scale), moments[1], master},
                                         {kMake},
                                         {}})[0];
      const auto applied = run_op({"apply",
                                   OpKind::kAdafactorApply,
                                   attrs,
                                   {grad, scalar(scale), scalar(rate), moments[1], squares, master},
                                   {adafactor_apply::kMaster, kMake},
                                   {}});
      AdafactorAttrs with_mean = attrs;
      with_mean.ema = 0.75f;
      const HostTensor mean = random(master.shape, DType::kF32, 77);
      const auto meant =
          run_op({"apply",
                  OpKind::kAdafactorApply,
                  with_mean,
                  {grad, scalar(scale), scalar(rate), moments[1], squares, master, none(), mean},
                  {adafactor_apply::kMaster, kSkip, adafactor_apply::kEma},
                  {}});
      EXPECT_EQ(meant[0].values, applied[0].values);
      for (const AdafactorSegment& s : attrs.segments) {
        for (std::int64_t i = s.begin; i < s.end; ++i)
          EXPECT_NEAR(meant[adafactor_apply::kEmaOut].at(i),
                      0.75 * mean.at(i) + 0.25 * applied[0].at(i), 1e-6);
      }
      const HostTensor before = master;
      master = applied[0];
      for (std::size_t w = 0; w < weights.size(); ++w) {
        const auto& s = attrs.segments[w];
        std::vector<double> g(grad.values.begin() + s.begin, grad.values.begin() + s.end);
        for (double& value : g) value *= scale;
        weights[w].update(g, static_cast<double>(step), rate, attrs, s);
        const HostTensor got = {Shape{s.end - s.begin},
                                DType::kF32,
                                {master.values.begin() + s.begin, master.values.begin() + s.end}};
        EXPECT_LE(relative_error(got, {got.shape, DType::kF32, weights[w].w}), 2e-6)
            << "weight " << w << ", step " << step;
        for (std::int64_t i = s.begin; i < s.end; ++i) {
          EXPECT_EQ(
              applied[1].at(i),
              static_cast<double>(static_cast<float>(bf16(static_cast<float>(master.at(i))))));
        }
      }
      for (std::size_t w = 0; w < weights.size(); ++w) {  // the gaps stay
        EXPECT_EQ(master.at(attrs.segments[w].begin - 1), before.at(attrs.segments[w].begin - 1));
      }
    }
    // A scale that is no number leaves weights and state as they were.
    const HostTensor grad = random({size}, grad_dtype, 7);
    const HostTensor sums =
        run_op({"sums", OpKind::kAdafactorSums, attrs, {grad}, {kMake, kMake}, {}})[0];
    const auto moments = run_op({"moments",
                                 OpKind::kAdafactorMoments,
                                 attrs,
                                 {sums, scalar(NAN), scalar(6, DType::kI64), state},
                                 {adafactor_moments::kState, kMake},
                                 {}});
    EXPECT_EQ(moments[0].values, state.values);
    const auto applied =
        run_op({"apply",
                OpKind::kAdafactorApply,
                attrs,
                {grad, scalar(NAN), scalar(rate), moments[1], random({8}, DType::kF32, 1), master},
                {adafactor_apply::kMaster, kSkip},
                {}});
    EXPECT_EQ(applied[0].values, master.values);
  }
}

TEST(Adafactor, APieceOfAWeightGivesItsPieceOfTheSums) {
  // A weight of 5 x 7 cut anywhere: the sums of the two pieces add up to those of the whole.
  const HostTensor grad = random({35}, DType::kF32, 1);
  const auto sums_of = [&](std::int64_t first, std::int64_t last) {
    AdafactorAttrs attrs;
    AdafactorSegment segment;
    segment.end = last - first;
    segment.first = first;
    segment.rows = segment.part_rows = 5;
    segment.cols = segment.part_cols = 7;
    segment.factored = true;
    attrs.segments = {segment};
    const HostTensor piece = {Shape{last - first},
                              DType::kF32,
                              {grad.values.begin() + first, grad.values.begin() + last}};
    return run_op({"sums", OpKind::kAdafactorSums, attrs, {piece}, {kMake, kMake}, {}})[0];
  };
  const HostTensor whole = sums_of(0, 35);
  for (std::int64_t cut = 1; cut < 35; ++cut) {
    HostTensor sum = sums_of(0, cut);
    const HostTensor rest = sums_of(cut, 35);
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += rest.values[i];
    EXPECT_LE(relative_error(sum, whole), 1e-6) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace quintet::testing
