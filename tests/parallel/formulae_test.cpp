// The figures counted from programs against the formulae of docs/parallelism.md: memory of states
// and bytes sent, by ZeRO stage; bytes of tensor and pipeline parallelism by layer and micro-batch.
#include <cctype>
#include <cmath>

#include <gtest/gtest.h>

#include "runtime/accounting.h"
#include "runtime/backend.h"
#include "runtime/dry_run.h"
#include "train/step_program.h"

namespace quintet {
namespace {

StepOptions step_of(std::int32_t dp, std::int32_t tp, std::int32_t pp, std::int64_t zero,
                    std::int32_t accumulate) {
  StepOptions options;
  options.model = preset("mt5-base").value();
  options.batch = {1, 64, 16, false};
  options.accumulate = accumulate;
  options.options.dtype = options.options.grad_dtype = DType::kBF16;
  options.grid = Grid(dp, tp, pp);
  options.layout.tp = tp;
  options.layout.pp = pp;
  options.layout.zero = zero;
  options.layout.whole_below = 0;
  return options;
}

double sent(const Program& program, Method method) {
  return static_cast<double>(by_method(
      traffic_of(program, *make_backend(program.target)))[static_cast<std::size_t>(method)]);
}

// Padding makes shards come out even; it is far below this.
constexpr double kPadding = 1e-3;

// Master weights and two moments; in eight bits each with 4 bytes for 256 values.
TEST(Formulae, StatesByMoments) {
  const auto parameters = static_cast<double>(preset("mt5-base").value().parameters());
  for (const auto& [moments, bytes] :
       {std::pair{"fp32", 8.0}, {"bf16", 4.0}, {"8bit", 2 + 2 * 4.0 / 256}}) {
    for (const std::int64_t zero : {0, 1, 3}) {
      StepOptions options = step_of(4, 1, 1, zero, 1);
      options.optimizer.moments = moments;
      const DryRun dry = dry_run(compile_step(options));
      const auto state =
          static_cast<double>(dry.highest[static_cast<std::size_t>(Storage::kOptimizer)]);
      EXPECT_NEAR(state / parameters, (4 + bytes) / (zero == 0 ? 1 : 4), kPadding)
          << moments << ", stage " << zero;
    }
  }
}

TEST(Formulae, StatesByZeroStage) {
  const auto parameters = static_cast<double>(preset("mt5-base").value().parameters());
  const double embedding = 250112.0 * 768;  // the largest unit; the head has as many
  for (const std::int32_t n : {4, 8}) {
    for (const std::int32_t g : {1, 4}) {
      for (std::int64_t zero = 0; zero <= 3; ++zero) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, {} micro-batches", n, zero, g));
        const DryRun dry = dry_run(compile_step(step_of(n, 1, 1, zero, g)));
        const auto per_parameter = [&](Storage storage) {
          return static_cast<double>(dry.highest[static_cast<std::size_t>(storage)]) / parameters;
        };
        EXPECT_NEAR(per_parameter(Storage::kParameter), zero == 3 ? 2.0 / n : 2.0, kPadding);
        EXPECT_NEAR(per_parameter(Storage::kOptimizer), zero == 0 ? 12.0 : 12.0 / n, kPadding);
        const double grads = per_parameter(Storage::kGradient);
        if (zero == 0) {
          EXPECT_NEAR(grads, 2.0, kPadding);
        } else if (zero == 1 && g > 1) {
          // Whole until the last micro-batch; then parts come while wholes go.
          EXPECT_GE(grads, 2.0 - kPadding);
          EXPECT_LE(grads, 2.0 + 2.0 / n);
        } else {
          // A part of each, and what is on its way: head, embedding, a layer or two.
          EXPECT_GE(grads, 2.0 / n - kPadding);
          EXPECT_LE(grads, 2.0 / n + 2.4 * embedding / parameters);
        }
      }
    }
  }
}

TEST(Formulae, BytesSentByZeroStage) {
  const auto parameters = static_cast<double>(preset("mt5-base").value().parameters());
  for (const std::int32_t n : {2, 4, 8}) {
    for (const std::int32_t g : {1, 4}) {
      for (std::int64_t zero = 0; zero <= 3; ++zero) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, {} micro-batches", n, zero, g));
        const double bytes =
            sent(compile_step(step_of(n, 1, 1, zero, g)), Method::kData) / parameters * n / (n - 1);
        if (zero <= 1) {
          EXPECT_NEAR(bytes, 4.0, kPadding);
        }
        if (zero == 2) {
          EXPECT_NEAR(bytes, 2.0 * (g + 1), kPadding);
        }
        if (zero == 3) {
          // Less than a gather in each direction: what is kept at the turn is not gathered again.
          EXPECT_LT(bytes, 6.0 * g);
          EXPECT_GT(bytes, 4.0 * g);
        }
      }
    }
  }
}

// Gathered as codes, layers take a byte a parameter and gather instead of two; and less memory.
TEST(Formulae, BytesOfGatheredCodes) {
  for (const std::int32_t g : {1, 4}) {
    StepOptions options = step_of(8, 1, 1, 3, g);
    options.options.fp8 = true;
    const Program weights = compile_step(options);
    options.layout.gather_fp8 = true;
    const Program codes = compile_step(options);
    double layers = 0;
    for (const Op& op : weights.ops) {
      if (op.kind != OpKind::kAllGather) continue;
      const std::string& unit = weights.units[static_cast<std::size_t>(op.tag.unit)].name;
      if (std::isdigit(static_cast<unsigned char>(unit.back())) != 0)
        layers += static_cast<double>(weights.tensor(op.outputs[0]).bytes()) * 7 / 8;
    }
    const auto parameters = static_cast<double>(options.model.parameters());
    EXPECT_GT(layers / parameters, g);
    EXPECT_NEAR((sent(weights, Method::kData) - sent(codes, Method::kData)) / parameters,
                layers / 2 / parameters, kPadding);
    EXPECT_LT(codes.arena_bytes, weights.arena_bytes);
  }
}

TEST(Formulae, BytesSentByTensorParallelism) {
  for (const std::int32_t n : {2, 4}) {
    for (const std::int32_t g : {1, 3}) {
      const StepOptions options = step_of(1, n, 1, 0, g);
      const T5Config& model = options.model;
      // Encoder: two gathers a layer and direction, and one each around the stack; decoder: three.
      const std::int64_t rows = options.batch.source * (4 * model.encoder_layers + 2) +
                                options.batch.target * (6 * model.decoder_layers + 2);
      const std::int64_t expected = g * rows * model.d_model * 2 * (n - 1) / n;
      const Program program = compile_step(options);
      for (const Traffic& row : traffic_of(program, *make_backend(program.target))) {
        if (row.kind == OpKind::kAllGather || row.kind == OpKind::kReduceScatter) {
          EXPECT_EQ(row.bytes, expected) << name_of(row.kind) << " " << n << " " << g;
        }
      }
    }
  }
}

TEST(Formulae, BytesSentByThePipeline) {
  const std::int32_t g = 4;
  const StepOptions options = step_of(1, 1, 4, 0, g);
  const std::int64_t encoder = g * options.batch.source * options.model.d_model * 2;
  const std::int64_t decoder = g * options.batch.target * options.model.d_model * 2;
  std::int64_t forward = 0, backward = 0;
  for (std::int32_t stage = 0; stage < 4; ++stage) {
    const Program program = compile_step(options, options.grid.rank_of(0, 0, stage));
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kSend) continue;
      const std::int64_t bytes = program.tensor(op.inputs[0]).bytes();
      (op.stream == Stream::kSendForward ? forward : backward) += bytes;
      // An encoder's hidden state (or its output, passed on) or a decoder's.
      EXPECT_TRUE(bytes == encoder / g || bytes == decoder / g) << bytes;
    }
  }
  // What goes forward comes back as a gradient. The encoder's side crosses every boundary before
  // the last decoder layer, the decoder's every one after the first; here the last stage is the
  // head.
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(forward, 2 * encoder + decoder);
}

}  // namespace
}  // namespace quintet
