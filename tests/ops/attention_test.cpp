#include "program/ops/attention.h"

#include <gtest/gtest.h>

#include "tests/ops/op_case.h"
#include "tests/ops/reference.h"

namespace quintet::testing {
namespace {

struct Setup {
  const char* name;
  std::int64_t batch, queries, keys;  // keys = 0: self-attention
  int heads, dim;
  bool causal, biased, padded;
  float dropout;
  bool packed = false;
};

void PrintTo(const Setup& s, std::ostream* out) {
  *out << s.name;
}

class AttentionTest : public ::testing::TestWithParam<std::tuple<Setup, DType>> {
 protected:
  void SetUp() override {
    const auto& [s, dtype] = GetParam();
    const std::int64_t width = std::int64_t{s.heads} * s.dim;
    attrs_.heads = s.heads;
    attrs_.head_dim = s.dim;
    attrs_.causal = s.causal;
    attrs_.buckets = s.biased ? 32 : 0;
    attrs_.max_distance = s.biased ? 128 : 0;
    attrs_.global_heads = s.heads + 2;
    attrs_.first_head = 1;
    attrs_.first_sample = 5;
    attrs_.dropout_rate = s.dropout;
    attrs_.dropout_seed = 17;
    attrs_.dropout_site = 23;
    const bool cross = s.keys > 0;
    const std::int64_t keys = cross ? s.keys : s.queries;
    HostTensor lengths = none();
    if (s.padded) {
      lengths = integers({s.batch}, std::vector<double>(static_cast<std::size_t>(s.batch), 1));
      for (std::int64_t b = 0; b < s.batch; ++b) {
        lengths.at(b) = static_cast<double>(std::max<std::int64_t>(1, keys - 3 * b));
      }
    }
    const double scale = 1 / std::sqrt(static_cast<double>(s.dim));
    inputs_ = {random({s.batch, s.queries, cross ? width : 3 * width}, dtype, 1, std::sqrt(scale)),
               cross ? random({s.batch, keys, 2 * width}, dtype, 2, std::sqrt(scale)) : none(),
               s.biased ? random({32, s.heads}, dtype, 3) : none(),
               lengths,
               s.dropout > 0 ? scalar(4, DType::kI64) : none(),
               s.packed ? segments(s.batch, s.queries) : none(),
               s.packed ? segments(s.batch, keys) : none()};
  }

  // Runs of segments 1, 2, ..., of unequal length and other ends in every row, then padding. A long
  // row has a segment 3 that a short one has not.
  static HostTensor segments(std::int64_t rows, std::int64_t length) {
    HostTensor ids =
        integers({rows, length}, std::vector<double>(static_cast<std::size_t>(rows * length), 0));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < length; ++i) {
        const std::int64_t first = length / 3 + r, second = first + 3, third = second + 2;
        ids.at(r * length + i) = i < first ? 1 : i < second ? 2 : i < third ? 3 : 0;
      }
    }
    return ids;
  }

  OpCase forward_case() const {
    return {"attention", OpKind::kAttention, attrs_, inputs_, {kMake, kMake}, {}};
  }
  bool cross() const { return !inputs_[attention::kKv].absent; }
  bool biased() const { return !inputs_[attention::kBias].absent; }
  // Of the forward's results and the gradient of its first.
  OpCase backward_case(const Tensors& forward, const HostTensor& d_out,
                       const HostTensor& d_bias_before) const {
    return {"attention_backward",
            OpKind::kAttentionBackward,
            attrs_,
            {d_out, inputs_[0], inputs_[1], inputs_[2], inputs_[3], inputs_[4], forward[0],
             forward[1], d_bias_before, inputs_[5], inputs_[6]},
            {kMake, cross() ? kMake : kSkip, biased() ? attention_backward::kDBiasAddend : kSkip},
            {}};
  }

  AttentionAttrs attrs_;
  Tensors inputs_;
};

TEST_P(AttentionTest, ValuesMatchTheReference) {
  const DType dtype = std::get<1>(GetParam());
  const auto expected = reference_attention(inputs_, attrs_);
  expect_op(forward_case(), {expected.out, expected.lse}, tolerance(dtype));
}

TEST_P(AttentionTest, GradientsMatchFiniteDifferences) {
  const DType dtype = std::get<1>(GetParam());
  const auto forward = run_op(forward_case());
  const HostTensor d_out = random(forward[0].shape, dtype, 9);
  const HostTensor d_bias_before = biased() ? random(inputs_[2].shape, DType::kF32, 10) : none();
  OpCase c = backward_case(forward, d_out, d_bias_before);
  const auto got = run_op(c);
  const auto objective = [&](const Tensors& in) {
    return dot(reference_attention(in, attrs_).out, d_out);
  };
  // A bf16 gradient carries the rounding of the forward's output, which the backward reads again.
  const double bound = dtype == DType::kF32 ? 2e-5 : 2e-2;
  // Element by element where that takes few evaluations of few scores; along some directions
  // otherwise.
  const std::int64_t keys = inputs_[cross() ? attention::kKv : attention::kQ].shape[1];
  const std::int64_t work = forward[0].shape.numel() * keys;
  const auto check = [&](std::size_t input, const HostTensor& gradient, const char* what) {
    if (inputs_[input].shape.numel() * work <= 5'000'000) {
      EXPECT_LE(relative_error(gradient, numeric_gradient(objective, inputs_, input)), bound)
          << what;
      return;
    }
    for (std::uint64_t seed = 101; seed <= 106; ++seed) {
      const Direction d = directional_gradient(objective, inputs_, input, seed);
      const double scale = std::sqrt(dot(gradient, gradient) * dot(d.direction, d.direction));
      EXPECT_NEAR(dot(gradient, d.direction), d.derivative, bound * scale) << what;
    }
  };
  check(0, got[0], "q");
  if (cross()) check(1, got[1], "kv");
  if (biased()) {
    HostTensor added = got[2];
    for (std::size_t i = 0; i < added.values.size(); ++i)
      added.values[i] -= d_bias_before.values[i];
    check(2, added, "bias");
    // Without an addend the gradient is written, not added to what was there.
    c.inputs[attention_backward::kDBiasAddend] = none();
    c.outputs[attention_backward::kDBias] = kMake;
    c.output_like = {none(), none(), d_bias_before};
    check(2, run_op(c)[2], "bias, first writer");
  }
}

TEST_P(AttentionTest, LeavesTheLargestOfWhatItMakes) {
  const DType dtype = std::get<1>(GetParam());
  if (dtype != DType::kBF16) return;  // nothing else is made into operands of eight bits
  // What is not a number: in the first value, which the first query sees, and in its gradient.
  const std::int64_t width = std::int64_t{attrs_.heads} * attrs_.head_dim;
  expect_largest(forward_case(), {{attention::kOut, attention::kLargest}},
                 cross() ? int{attention::kKv} : attention::kQ, cross() ? width : 2 * width);
  const auto forward = run_op(forward_case());
  const OpCase backward =
      backward_case(forward, random(forward[0].shape, dtype, 9, 1e-3),
                    biased() ? random(inputs_[2].shape, DType::kF32, 10) : none());
  std::vector<LargestOf> pairs = {{attention_backward::kDQ, attention_backward::kDQLargest}};
  if (cross()) pairs.push_back({attention_backward::kDKv, attention_backward::kDKvLargest});
  expect_largest(backward, pairs, attention_backward::kDOut, 0);
}

// Tiles go past the last query: what they compute there, larger than all that is stored, is not to
// count. The queries, of ones, avoid the key that has the large value; zeros would not.
TEST(AttentionLargest, IsNotThatOfRowsPastTheEnd) {
  for (const bool packed : {false, true}) {
    for (const auto& [queries, dim] : {std::pair<std::int64_t, int>{70, 64}, {130, 64}, {70, 40}}) {
      constexpr std::int64_t kKeys = 20;
      constexpr int kHeads = 2;
      AttentionAttrs attrs;
      attrs.heads = attrs.global_heads = kHeads;
      attrs.head_dim = dim;
      const std::int64_t width = std::int64_t{kHeads} * dim;
      HostTensor q = random({1, queries, width}, DType::kBF16, 1, 0);
      HostTensor kv = random({1, kKeys, 2 * width}, DType::kBF16, 2, 0.01);
      for (double& value : q.values) value = 1;
      for (std::int64_t i = 0; i < width; ++i) {
        kv.at(i) = -1;
        kv.at(width + i) = 1000;
      }
      const auto segments = [&](std::int64_t length) {
        return packed
                   ? integers({1, length}, std::vector<double>(static_cast<std::size_t>(length), 1))
                   : none();
      };
      const OpCase c{
          "attention",    OpKind::kAttention,
          attrs,          {q, kv, none(), none(), none(), segments(queries), segments(kKeys)},
          {kMake, kMake}, {}};
      const auto out = run_op(c);
      for (const double value : out[attention::kOut].values) ASSERT_LT(std::abs(value), 1);
      expect_largest(c, {{attention::kOut, attention::kLargest}}, attention::kKv, width);
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<AttentionTest::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" +
         std::string(name_of(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionTest,
    ::testing::Combine(
        ::testing::Values(
            Setup{"one_of_everything", 1, 1, 0, 1, 1, false, true, false, 0},
            Setup{"encoder", 2, 9, 0, 2, 4, false, true, false, 0},
            Setup{"encoder_padded", 3, 11, 0, 2, 5, false, true, true, 0},
            Setup{"encoder_unbiased", 2, 7, 0, 3, 3, false, false, false, 0},
            Setup{"decoder", 2, 9, 0, 2, 4, true, true, false, 0},
            Setup{"decoder_one_token", 2, 1, 0, 2, 4, true, true, false, 0},
            Setup{"cross", 2, 5, 9, 2, 4, false, false, false, 0},
            Setup{"cross_padded", 3, 5, 10, 2, 4, false, false, true, 0},
            Setup{"cross_one_key", 2, 5, 1, 2, 4, false, false, false, 0},
            Setup{"encoder_dropout", 2, 9, 0, 2, 4, false, true, true, 0.3f},
            Setup{"decoder_dropout", 2, 9, 0, 2, 4, true, true, false, 0.3f},
            Setup{"cross_dropout_many_keys", 1, 3, 301, 1, 4, false, false, false, 0.3f},
            Setup{"encoder_past_a_block_and_the_last_bucket", 1, 141, 0, 1, 3, false, true, true,
                  0},
            Setup{"decoder_past_a_block_and_the_last_bucket", 1, 141, 0, 2, 7, true, true, false,
                  0},
            Setup{"cross_past_a_block", 1, 70, 67, 2, 16, false, false, true, 0},
            Setup{"encoder_head_64", 1, 65, 0, 1, 64, false, true, false, 0},
            Setup{"encoder_packed", 3, 13, 0, 2, 4, false, true, false, 0, true},
            Setup{"decoder_packed", 2, 11, 0, 2, 4, true, true, false, 0, true},
            Setup{"cross_packed", 2, 5, 12, 2, 4, false, false, false, 0, true},
            Setup{"encoder_padded_head_64", 2, 131, 0, 1, 64, false, true, true, 0},
            Setup{"decoder_head_64", 1, 140, 0, 2, 64, true, true, false, 0},
            Setup{"decoder_unbiased_head_64", 1, 33, 0, 1, 64, true, false, false, 0},
            Setup{"cross_padded_head_64", 2, 20, 133, 1, 64, false, false, true, 0},
            Setup{"encoder_packed_head_64", 1, 150, 0, 1, 64, false, true, false, 0, true},
            Setup{"decoder_packed_head_64", 2, 70, 0, 1, 64, true, true, false, 0, true},
            Setup{"cross_packed_head_64", 1, 20, 135, 1, 64, false, false, false, 0, true},
            Setup{"encoder_packed_past_a_block", 1, 90, 0, 1, 3, false, true, false, 0.2f, true}),
        ::testing::Values(DType::kF32, DType::kBF16)),
    case_name);

TEST(RelativeBias, BucketsOfTheReferenceModel) {
  // Read off the reference implementation: 32 buckets, distance 128.
  EXPECT_EQ(bias_bucket(0, false, 32, 128), 0);
  EXPECT_EQ(bias_bucket(7, false, 32, 128), 23);
  EXPECT_EQ(bias_bucket(-7, false, 32, 128), 7);
  EXPECT_EQ(bias_bucket(8, false, 32, 128), 24);
  EXPECT_EQ(bias_bucket(-127, false, 32, 128), 15);
  EXPECT_EQ(bias_bucket(-5000, false, 32, 128), 15);
  EXPECT_EQ(bias_bucket(5000, false, 32, 128), 31);
  EXPECT_EQ(bias_bucket(3, true, 32, 128), 0);
  EXPECT_EQ(bias_bucket(-15, true, 32, 128), 15);
  EXPECT_EQ(bias_bucket(-16, true, 32, 128), 16);
  EXPECT_EQ(bias_bucket(-128, true, 32, 128), 31);
}

}  // namespace
}  // namespace quintet::testing
