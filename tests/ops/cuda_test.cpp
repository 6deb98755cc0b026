// The GPU against the CPU, op by op, on sizes that models have: every vector width, many blocks,
// ties and long runs, which the small cases of the other tests do not reach. And the same bits
// every time.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "program/ops/adafactor.h"
#include "program/ops/adamw.h"
#include "program/ops/embedding.h"
#include "program/ops/linear_cross_entropy.h"
#include "tests/ops/op_case.h"

namespace quintet::testing {
namespace {

// Largest relative error between the devices. float32: the order of sums differs. bf16: both round
// the same exact value once, but where it lies near a tie they may round apart, 2^-8 for such an
// element; gradients of attention and of the loss pass through one more rounding of an
// intermediate.
struct Bounds {
  double f32, bf16;
};
constexpr Bounds kOneRounding{2e-6, 2e-3}, kLongSums{1e-5, 3e-3}, kTwoRoundings{2e-5, 8e-3};

void compare(const OpCase& c, DType dtype, Bounds bounds) {
  const auto cpu = run_op(c, Device::kCpu), gpu = run_op(c, Device::kCuda);
  ASSERT_EQ(cpu.size(), gpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    if (cpu[i].absent) continue;
    const double bound = dtype == DType::kF32 ? bounds.f32 : bounds.bf16;
    EXPECT_LE(relative_error(gpu[i], cpu[i]), bound) << c.name << ", result " << i;
  }
  const auto again = run_op(c, Device::kCuda);
  for (std::size_t i = 0; i < gpu.size(); ++i)
    EXPECT_EQ(again[i].values, gpu[i].values) << c.name << ", result " << i << ", run twice";
}

class Cuda : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, Cuda, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Cuda, Embedding) {
  const std::int64_t rows = 5000, width = 768, tokens = 3000;
  HostTensor ids = random_ids({2, tokens / 2}, rows, 1);
  for (std::int64_t i = 0; i < tokens; i += 3) ids.at(i) = 17;  // one very common word
  for (std::int64_t i = 1; i < tokens; i += 17) ids.at(i) = rows - 1;
  const HostTensor table = random({rows, width}, dtype(), 2),
                   dy = random({2, tokens / 2, width}, dtype(), 3);
  compare({"embedding", OpKind::kEmbedding, EmbeddingAttrs{}, {table, ids}, {kMake}, {}}, dtype(),
          {0, 0});
  for (const bool add : {false, true}) {
    OpCase c{"embedding_backward",
             OpKind::kEmbeddingBackward,
             EmbeddingAttrs{100},
             {dy, ids, add ? table : none()},
             {add ? static_cast<int>(embedding_backward::kAddend) : kMake},
             {table}};
    compare(c, dtype(), kOneRounding);
  }
}

TEST_P(Cuda, RmsNorm) {
  for (const std::int64_t width : {512, 768, 1024, 2048, 4096, 1000, 8192}) {
    const std::int64_t rows = 777;
    const HostTensor x = random({rows, width}, dtype(), 1), w = random({width}, dtype(), 2);
    const OpCase forward{"rms_norm", OpKind::kRmsNorm, RmsNormAttrs{1e-6f},
                         {x, w},     {kMake, kMake},   {}};
    compare(forward, dtype(), kOneRounding);
    const HostTensor rstd = run_op(forward, Device::kCpu)[1];
    const HostTensor dy = random({rows, width}, dtype(), 3),
                     addend = random({rows, width}, dtype(), 4);
    compare({"rms_norm_backward",
             OpKind::kRmsNormBackward,
             RmsNormAttrs{1e-6f},
             {dy, x, w, rstd, addend, random({width}, DType::kF32, 5)},
             {kMake, rms_norm_backward::kDWeightAddend},
             {}},
            dtype(), kLongSums);
  }
}

TEST_P(Cuda, Matmul) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const std::int64_t m = 640, n = 1536, k = 768;
      const HostTensor a = random(ta ? Shape{k, m} : Shape{m, k}, dtype(), 1);
      const HostTensor b = random(tb ? Shape{n, k} : Shape{k, n}, dtype(), 2);
      for (const bool add : {false, true}) {
        compare({"matmul",
                 OpKind::kMatmul,
                 MatmulAttrs{ta, tb},
                 {a, b, add ? random({m, n}, dtype(), 3, 10) : none()},
                 {kMake},
                 {}},
                dtype(), kLongSums);
      }
    }
  }
}

TEST_P(Cuda, Activation) {
  for (const bool gated : {false, true}) {
    const HostTensor h = random({300, 4096}, dtype(), 1, 2),
                     dy = random({300, gated ? 2048 : 4096}, dtype(), 2);
    const ActivationAttrs attrs{Nonlinearity::kGeluTanh, gated};
    compare({"activation", OpKind::kActivation, attrs, {h}, {kMake}, {}}, dtype(), kOneRounding);
    compare({"activation_backward", OpKind::kActivationBackward, attrs, {dy, h}, {kMake}, {}},
            dtype(), kOneRounding);
  }
}

TEST_P(Cuda, Dropout) {
  const HostTensor x = random({333, 768}, dtype(), 1), addend = random({333, 768}, dtype(), 2);
  compare({"dropout",
           OpKind::kDropout,
           DropoutAttrs{0.1f, 3, 4, {7, 0, 768, 1536}},
           {x, scalar(5, DType::kI64), addend},
           {kMake},
           {}},
          dtype(), kOneRounding);
}

TEST_P(Cuda, Attention) {
  struct Setup {
    const char* name;
    std::int64_t batch, queries, keys;
    int heads, dim;
    bool causal, biased, padded;
    float dropout;
    bool packed = false;
  };
  // Runs of this many tokens, the last of them a part of one.
  const auto segments = [](std::int64_t rows, std::int64_t length, std::int64_t run) {
    HostTensor ids =
        integers({rows, length}, std::vector<double>(static_cast<std::size_t>(rows * length), 0));
    for (std::int64_t i = 0; i < rows * length; ++i)
      ids.at(i) = static_cast<double>(1 + (i % length + 5 * (i / length)) / run);
    return ids;
  };
  for (const Setup& s : {Setup{"encoder", 2, 512, 0, 3, 64, false, true, false, 0},
                         Setup{"encoder_ragged", 2, 333, 0, 2, 64, false, true, true, 0.1f},
                         Setup{"decoder", 2, 256, 0, 3, 64, true, true, false, 0},
                         Setup{"cross", 2, 128, 320, 3, 64, false, false, true, 0},
                         Setup{"wide_heads", 1, 130, 0, 2, 128, true, true, false, 0},
                         Setup{"encoder_packed", 2, 512, 0, 2, 64, false, true, false, 0, true},
                         Setup{"encoder_packed_odd", 3, 387, 0, 2, 64, false, true, false, 0, true},
                         Setup{"decoder_packed", 2, 333, 0, 2, 64, true, true, false, 0, true},
                         Setup{"cross_packed", 2, 200, 451, 2, 64, false, false, false, 0, true}}) {
    const std::int64_t width = std::int64_t{s.heads} * s.dim,
                       keys = s.keys > 0 ? s.keys : s.queries;
    AttentionAttrs attrs;
    attrs.heads = attrs.global_heads = s.heads;
    attrs.head_dim = s.dim;
    attrs.causal = s.causal;
    attrs.buckets = s.biased ? 32 : 0;
    attrs.max_distance = s.biased ? 128 : 0;
    attrs.dropout_rate = s.dropout;
    const double scale = std::pow(static_cast<double>(s.dim), -0.25);
    const HostTensor q =
        random({s.batch, s.queries, (s.keys > 0 ? 1 : 3) * width}, dtype(), 1, scale);
    const HostTensor kv =
        s.keys > 0 ? random({s.batch, keys, 2 * width}, dtype(), 2, scale) : none();
    const HostTensor bias = s.biased ? random({32, s.heads}, dtype(), 3) : none();
    const HostTensor lengths =
        s.padded ? integers({2}, {static_cast<double>(keys), static_cast<double>(keys - 70)})
                 : none();
    const HostTensor step = s.dropout > 0 ? scalar(4, DType::kI64) : none();
    const HostTensor query_segments = s.packed ? segments(s.batch, s.queries, 40) : none();
    const HostTensor key_segments =
        s.packed ? segments(s.batch, keys, s.keys > 0 ? 101 : 40) : none();
    const OpCase forward{s.name,         OpKind::kAttention,
                         attrs,          {q, kv, bias, lengths, step, query_segments, key_segments},
                         {kMake, kMake}, {}};
    compare(forward, dtype(), kTwoRoundings);
    const auto out = run_op(forward, Device::kCpu);
    const OpCase backward{
        s.name,
        OpKind::kAttentionBackward,
        attrs,
        {random(out[0].shape, dtype(), 5), q, kv, bias, lengths, step, out[0], out[1], none(),
         query_segments, key_segments},
        {kMake, s.keys > 0 ? kMake : kSkip, s.biased ? kMake : kSkip},
        {none(), none(), s.biased ? random({32, s.heads}, DType::kF32, 6) : none()}};
    compare(backward, dtype(), kTwoRoundings);
    if (dtype() != DType::kBF16) continue;  // nothing else leaves its largest
    // What is not a number: in the first value, and in the gradient of its first query.
    expect_largest(forward, {{attention::kOut, attention::kLargest}},
                   s.keys > 0 ? int{attention::kKv} : attention::kQ,
                   s.keys > 0 ? width : 2 * width);
    std::vector<LargestOf> pairs = {{attention_backward::kDQ, attention_backward::kDQLargest}};
    if (s.keys > 0) pairs.push_back({attention_backward::kDKv, attention_backward::kDKvLargest});
    expect_largest(backward, pairs, attention_backward::kDOut, 0);
  }
}

TEST_P(Cuda, LinearCrossEntropy) {
  for (const std::int64_t words : {5003, 20008}) {  // whole packs and a rest
    const std::int64_t tokens = 200, width = 256;
    HostTensor labels = random_ids({1, tokens}, words, 1);
    labels.at(7) = -100;
    LinearCrossEntropyAttrs attrs;
    attrs.chunk = 64;
    attrs.z_loss = 1e-4f;
    attrs.smoothing = 0.1f;
    compare({"linear_cross_entropy",
             OpKind::kLinearCrossEntropy,
             attrs,
             {random({1, tokens, width}, dtype(), 2), random({words, width}, dtype(), 3, 0.06),
              labels, scalar(static_cast<double>(tokens - 1)), none(), none()},
             {kMake, kMake, kMake},
             {none(), none(), random({words, width}, dtype(), 4)}},
            dtype(), kTwoRoundings);
  }
}

TEST_P(Cuda, Norms) {
  compare({"squared_norm",
           OpKind::kSquaredNorm,
           NoAttrs{},
           {random({3000001}, dtype(), 1)},
           {kMake},
           {}},
          DType::kF32, kOneRounding);
  compare({"add",
           OpKind::kAdd,
           NoAttrs{},
           {random({100003}, dtype(), 1), random({100003}, dtype(), 2)},
           {kMake},
           {}},
          dtype(), {0, 0});
}

TEST_P(Cuda, AdamW) {
  const std::int64_t size = 100003;
  HostTensor v = random({size}, DType::kF32, 4, 0.1);
  for (double& value : v.values) value = std::abs(value);
  compare({"adamw",
           OpKind::kAdamW,
           AdamWAttrs{0.9f, 0.99f, 1e-8f, 0.1f},
           {random({size}, dtype(), 1), scalar(0.5), scalar(0.01), scalar(7, DType::kI64),
            random({size}, DType::kF32, 2), random({size}, DType::kF32, 3, 0.1), v, none()},
           {adamw::kMaster, adamw::kM, adamw::kV, kMake},
           {}},
          dtype(), kOneRounding);
}

TEST_P(Cuda, Adafactor) {
  AdafactorAttrs attrs;
  std::int64_t size = 0, state = 0;
  // More of them than one launch takes.
  std::vector<std::array<std::int64_t, 2>> shapes = {
      {1, 768}, {3000, 768}, {1000, 130}, {40, 4096}};
  for (std::int64_t i = 1; i <= 20; ++i) shapes.push_back({i, 24 * i});
  for (const auto& [rows, cols] : shapes) {
    AdafactorSegment s;
    s.in_norm = attrs.segments.size() % 3 != 1;
    s.begin = size;
    s.end = size + rows * cols;
    s.rows = s.part_rows = rows;
    s.cols = s.part_cols = cols;
    s.factored = rows > 1;
    s.state = state;
    size = (s.end + 7) / 8 * 8;
    state += s.state_size();
    attrs.segments.push_back(s);
  }
  const HostTensor grad = random({size}, dtype(), 1), master = random({size}, DType::kF32, 2);
  const OpCase sums{"sums", OpKind::kAdafactorSums, attrs, {grad}, {kMake, kMake}, {}};
  compare(sums, DType::kF32, kLongSums);
  const HostTensor total = run_op(sums, Device::kCpu)[0];
  const HostTensor before = {total.shape, DType::kF32,
                             std::vector<double>(total.values.size(), 0.1)};
  const OpCase moments{"moments",
                       OpKind::kAdafactorMoments,
                       attrs,
                       {total, scalar(0.5), scalar(3, DType::kI64), before},
                       {adafactor_moments::kState, kMake},
                       {}};
  compare(moments, DType::kF32, kOneRounding);
  const HostTensor factors = run_op(moments, Device::kCpu)[1];
  OpCase rms{"rms",   OpKind::kAdafactorRms,
             attrs,   {grad, scalar(0.5), factors, random({size}, DType::kBF16, 2)},
             {kMake}, {}};
  compare(rms, DType::kF32, kLongSums);
  rms.inputs[adafactor_rms::kWeights] = master;
  compare(rms, DType::kF32, kLongSums);
  compare({"apply",
           OpKind::kAdafactorApply,
           attrs,
           {grad, scalar(0.5), scalar(0.01), factors, run_op(rms, Device::kCpu)[0], master, none()},
           {adafactor_apply::kMaster, kMake},
           {none(), {Shape{size}, DType::kBF16, {}}}},
          DType::kF32, {2e-3, 2e-3});
}

// Large enough for every block to have several pieces of the work, and to wait for others'.
TEST(CudaQuantizeWeights, OfALayer) {
  namespace qw = quantize_weights;
  std::vector<HostTensor> matrices;
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{3072, 512},
                                   {512, 1024},
                                   {16, 16},
                                   {2064, 528},
                                   {4096, 512},
                                   {512, 2048}}) {
    const auto seed = static_cast<std::uint64_t>(matrices.size());
    matrices.push_back(
        random({rows, cols}, DType::kBF16, seed, std::exp2(-static_cast<double>(seed))));
    matrices.back().at(rows * cols - 1 - static_cast<std::int64_t>(seed) * 20) *= 64;
  }
  OpCase codes{"codes", OpKind::kQuantizeWeights, QuantizeAttrs{}, {}, {}, {}};
  for (const HostTensor& x : matrices) {
    codes.inputs.insert(codes.inputs.end(), {x, none()});
    codes.outputs.insert(codes.outputs.end(), {kMake, kSkip, kMake});
  }
  compare(codes, DType::kBF16, {0, 0});
  const auto made = run_op(codes, Device::kCpu);
  OpCase turned = codes;
  turned.name = "transposed";
  turned.outputs.clear();
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    turned.inputs[i * qw::kInputs + qw::kKnownUnit] = made[i * qw::kOutputs + quantize::kUnit];
    turned.outputs.insert(turned.outputs.end(), {kSkip, kMake, kSkip});
  }
  compare(turned, DType::kBF16, {0, 0});

  // The same of codes that were gathered, and what is made of a rank's runs of these matrices.
  OpCase gathered = turned, units = codes, runs = codes;
  gathered.name = "codes, transposed";
  units.name = "units of runs";
  runs.name = "codes of runs";
  units.outputs.clear();
  runs.outputs.clear();
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const HostTensor& made_codes = made[i * qw::kOutputs + quantize::kCodes];
    gathered.inputs[i * qw::kInputs + qw::kX] = made_codes;
    HostTensor run = matrices[i];
    run.values.resize(run.values.size() - 8 * i);
    run.shape = Shape{std::ssize(run.values)};
    units.inputs[i * qw::kInputs + qw::kX] = runs.inputs[i * qw::kInputs + qw::kX] = run;
    runs.inputs[i * qw::kInputs + qw::kKnownUnit] = made[i * qw::kOutputs + quantize::kUnit];
    units.outputs.insert(units.outputs.end(), {kSkip, kSkip, kMake});
    runs.outputs.insert(runs.outputs.end(), {kMake, kSkip, kSkip});
  }
  compare(gathered, DType::kBF16, {0, 0});
  compare(units, DType::kBF16, {0, 0});
  compare(runs, DType::kBF16, {0, 0});
}

}  // namespace
}  // namespace quintet::testing
