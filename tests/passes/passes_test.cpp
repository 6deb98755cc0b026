#include <cctype>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "passes/memory_plan.h"
#include "passes/rewriter.h"
#include "program/builder.h"
#include "program/verifier.h"
#include "runtime/backend.h"
#include "runtime/dry_run.h"
#include "tests/support/programs.h"
#include "train/feed.h"
#include "train/model_state.h"

namespace quintet {
namespace {

using testing::tiny_step;

Batch random_batch(const StepOptions& options, std::uint64_t seed) {
  Batch batch;
  batch.resize(options.batch.micro_batch, options.batch.source, options.batch.target);
  PhiloxSequence random(seed, 1);
  const auto vocabulary = static_cast<std::uint32_t>(options.model.vocab_size);
  for (auto& id : batch.source) id = static_cast<std::int32_t>(random.below(vocabulary));
  for (auto& id : batch.labels) id = static_cast<std::int32_t>(random.below(vocabulary));
  batch.labels[2] = -100;
  shift_right(batch.labels, batch.target_length, 0, 0, batch.target);
  for (std::int64_t i = 0; i < batch.sequences; ++i) {
    batch.lengths.push_back(static_cast<std::int32_t>(batch.source_length - i));
  }
  return batch;
}

struct Gradients {
  double loss;
  std::vector<std::vector<std::byte>> units;
};

// One step without update, from the same weights and data whatever the options.
Gradients gradients_of(StepOptions options, const std::vector<Batch>& batches) {
  options.update = false;
  options.accumulate = static_cast<std::int32_t>(batches.size());
  const Program program = compile_step(options);
  const auto world = make_single_world();
  const auto executor = make_cpu_executor(program, *world);
  EXPECT_EQ(executor.value()->arena_bytes(), dry_run(program).arena_bytes);
  ModelState(*executor.value(), *world, options.model).initialise(7);
  for (std::size_t m = 0; m < batches.size(); ++m) {
    EXPECT_TRUE(feed(*executor.value(), static_cast<std::int32_t>(m), batches[m], options).ok());
  }
  Gradients result{run_step(*executor.value(), 1, 0).value().loss, {}};
  for (const Unit& unit : program.units) {
    if (unit.grads == kNone) continue;
    for (const Weight& weight : unit.weights) {
      const std::int64_t element = size_of(program.tensor(unit.grads).dtype);
      std::vector<std::byte> bytes(static_cast<std::size_t>(weight.shape.numel() * element));
      executor.value()->read(unit.grads, weight.offset * element, bytes);
      result.units.push_back(std::move(bytes));
    }
  }
  return result;
}

class RecomputeTest : public ::testing::TestWithParam<std::tuple<DType, double>> {};

TEST_P(RecomputeTest, KeepsEveryBitOfTheGradients) {
  StepOptions options = tiny_step();
  options.options.dtype = options.options.grad_dtype = std::get<0>(GetParam());
  options.model.dropout = std::get<1>(GetParam());
  const std::vector<Batch> batches = {random_batch(options, 1), random_batch(options, 2)};
  const Gradients kept = gradients_of(options, batches);
  for (const auto mode : {Recompute::kSelective, Recompute::kFull}) {
    options.recompute = mode;
    const Gradients redone = gradients_of(options, batches);
    EXPECT_EQ(redone.loss, kept.loss);
    EXPECT_TRUE(redone.units == kept.units);
  }
}
INSTANTIATE_TEST_SUITE_P(All, RecomputeTest,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Values(0.0, 0.2)));

TEST(Recompute, TradesMemoryForWork) {
  StepOptions options = tiny_step();
  options.batch = {16, 64, 32, false};
  std::vector<DryRun> runs;
  for (const auto mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    options.recompute = mode;
    runs.push_back(dry_run(compile_step(options)));
  }
  const auto activations = static_cast<std::size_t>(Storage::kActivation);
  EXPECT_LT(runs[1].highest[activations], runs[0].highest[activations] * 4 / 5);
  EXPECT_LT(runs[2].highest[activations], runs[1].highest[activations] * 2 / 3);
  EXPECT_EQ(runs[1].recompute_flops, 0);
  EXPECT_GT(runs[2].recompute_flops, 0);
  EXPECT_LT(runs[2].recompute_flops, runs[2].flops / 3);  // at most one forward more
  EXPECT_EQ(runs[0].flops, runs[2].flops);
}

// A step whose products take operands of eight bits: sides of 16, on two tensor-parallel ranks,
// too.
StepOptions fp8_step() {
  StepOptions options = tiny_step();
  options.model.d_model = 32;
  options.model.num_heads = 2;
  options.model.d_kv = 16;
  options.model.d_ff = 64;
  options.batch = {2, 16, 8, true};
  options.options.dtype = options.options.grad_dtype = DType::kBF16;
  options.options.fp8 = true;
  return options;
}

TEST(Fp8, RecomputeKeepsEveryBitOfTheGradients) {
  StepOptions options = fp8_step();
  const std::vector<Batch> batches = {random_batch(options, 1), random_batch(options, 2)};
  const Gradients kept = gradients_of(options, batches);
  for (const auto mode : {Recompute::kSelective, Recompute::kFull}) {
    options.recompute = mode;
    const Gradients redone = gradients_of(options, batches);
    EXPECT_EQ(redone.loss, kept.loss);
    EXPECT_TRUE(redone.units == kept.units);
  }
}

// A layer's weights become operands in eight bits together: once in the forward, once more where
// the forward's products are run again, and in the backward the last one first, then the others.
TEST(Fp8, WeightsOfALayerAreMadeTogether) {
  StepOptions options = fp8_step();
  options.accumulate = 2;
  const std::int64_t layers = options.model.encoder_layers + options.model.decoder_layers;
  for (const auto mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    options.recompute = mode;
    const Program program = compile_step(options);
    std::map<Phase, std::int64_t> ops;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kQuantizeWeights) continue;
      ++ops[op.tag.phase];
      const std::string& unit = program.units[static_cast<std::size_t>(op.tag.unit)].name;
      const int count = quantize_weights::count(op), all = unit.starts_with("encoder") ? 4 : 7;
      if (op.tag.phase == Phase::kBackward) {
        EXPECT_TRUE(count == 1 || count == all - 1) << unit;
      } else {
        EXPECT_EQ(count, all) << unit;
      }
    }
    EXPECT_EQ(ops[Phase::kForward], 2 * layers);
    EXPECT_EQ(ops[Phase::kBackward], 4 * layers);
    EXPECT_EQ(ops[Phase::kRecompute], mode == Recompute::kFull ? 2 * layers : 0);
  }
}

// What makes an operand leaves its largest magnitude beside it: only weights are gone through once
// more for theirs, and between tensor-parallel ranks what a collective brought.
TEST(Fp8, LargestMagnitudesComeAlongWithWhatOpsMake) {
  for (const std::int32_t tp : {1, 2}) {
    for (const auto mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      StepOptions options = fp8_step();
      options.layout.tp = tp;
      options.grid = make_grid(tp, options.layout).value();
      options.recompute = mode;
      const Program program = compile_step(options);
      int of_attention = 0, of_its_backward = 0;
      for (const Op& op : program.ops) {
        if (op.kind != OpKind::kQuantize) continue;
        const OpView v{program, op};
        if (v.has_in(quantize::kKnownUnit) || v.in(quantize::kX).storage == Storage::kParameter)
          continue;
        const Op* from = program.producer(op.inputs[quantize::kX]);
        ASSERT_NE(from, nullptr);
        if (tp > 1 && is_communication(from->kind)) continue;
        ASSERT_TRUE(v.has_in(quantize::kLargest)) << v.in(quantize::kX).name;
        EXPECT_EQ(program.producer(op.inputs[quantize::kLargest]), from);
        of_attention += from->kind == OpKind::kAttention;
        of_its_backward += from->kind == OpKind::kAttentionBackward;
      }
      // Each layer's, of the decoder also that to the source, which has two gradients.
      const auto layers = static_cast<int>(options.model.encoder_layers),
                 decoders = static_cast<int>(options.model.decoder_layers);
      const int again = mode == Recompute::kNone ? 1 : 2;
      EXPECT_EQ(of_attention, again * (layers + 2 * decoders));
      EXPECT_EQ(of_its_backward, layers + 3 * decoders);
    }
  }
}

// What only products read is never there in sixteen bits, where the op that makes it can round it.
TEST(Fp8, OperandsAreRoundedWhereTheyAreMade) {
  for (const double dropout : {0.0, 0.1}) {
    for (const auto mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      StepOptions options = fp8_step();
      options.model.dropout = dropout;
      options.recompute = mode;
      options.accumulate = 2;
      const Program program = compile_step(options);
      std::vector<int> readers(program.tensors.size(), 0);
      for (const Op& op : program.ops)
        for (const TensorId t : op.inputs)
          if (t != kNone) ++readers[static_cast<std::size_t>(t)];
      std::map<OpKind, std::int64_t> with_codes, without;
      std::map<TensorId, int> guesses;
      for (const Op& op : program.ops) {
        const OpView v{program, op};
        if (const quantize::AtSource* slots = quantize::at_source(op.kind)) {
          const bool codes = quantize::elements_rounded(v) > 0;
          ++(codes ? with_codes : without)[op.kind];
          EXPECT_EQ(codes, !v.has_out(slots->result));
          if (!codes) continue;
          const TensorId guess = op.outputs.back();
          EXPECT_EQ(OpView::slot(op.inputs, slots->guess), guess);
          EXPECT_EQ(program.tensor(guess).storage, Storage::kCache);
          ++guesses[guess];
        } else if (op.kind != OpKind::kQuantize) {
          continue;
        }
        for (const TensorId t : op.outputs) {  // and nothing is made that nobody reads
          const bool of_product = t != kNone && is_fp8(program.tensor(t).dtype);
          EXPECT_TRUE(!of_product || readers[static_cast<std::size_t>(t)] > 0)
              << program.tensor(t).name;
        }
      }
      const std::int64_t encoders = options.model.encoder_layers,
                         decoders = options.model.decoder_layers, layers = encoders + decoders;
      const std::int64_t again = mode == Recompute::kNone ? 1 : 2;
      // What dropout reads is there whole; its gradient is not.
      EXPECT_EQ(with_codes[OpKind::kActivation], dropout > 0 ? 0 : 2 * again * layers);
      EXPECT_EQ(without[OpKind::kActivation], dropout > 0 ? 2 * again * layers : 0);
      EXPECT_EQ(with_codes[OpKind::kActivationBackward], 2 * layers);
      EXPECT_EQ(without[OpKind::kActivationBackward], 0);
      // All norms but those at the end of each stack.
      EXPECT_EQ(with_codes[OpKind::kRmsNorm], 2 * again * (2 * encoders + 3 * decoders));
      for (const auto& [guess, ops] : guesses) EXPECT_EQ(ops, 2);  // one of each micro-batch
    }
  }
}

// With codes gathered instead of weights, layers travel in half the bytes, at the same places of
// the program, and from shards that are what they are without; no rank has a layer's weights whole.
TEST(Fp8, GathersCodesInsteadOfWeights) {
  for (const std::int32_t tp : {1, 2}) {
    for (const auto mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      SCOPED_TRACE(fmt::format("tp {}, recompute {}", tp, static_cast<int>(mode)));
      StepOptions options = fp8_step();
      options.layout.tp = tp;
      options.layout.zero = 3;
      options.layout.whole_below = 0;
      options.grid = make_grid(3 * tp, options.layout).value();
      options.recompute = mode;
      options.accumulate = 2;
      const Program weights = compile_step(options, tp);
      options.layout.gather_fp8 = true;
      EXPECT_TRUE(validate(options).ok());
      EXPECT_TRUE(verify_all_ranks(options).empty());
      const Program codes = compile_step(options, tp);

      using Gather = std::tuple<std::int32_t, std::int32_t, Phase, std::int64_t>;
      const auto gathers = [](const Program& program, DType dtype, bool layers) {
        std::vector<Gather> found;
        for (const Op& op : program.ops) {
          if (op.kind != OpKind::kAllGather || op.tag.method != Method::kData) continue;
          const Tensor& whole = program.tensor(op.outputs[0]);
          const std::string& unit = program.units[static_cast<std::size_t>(op.tag.unit)].name;
          if (whole.dtype != dtype || layers != (std::isdigit(unit.back()) != 0)) continue;
          found.emplace_back(op.tag.unit, op.tag.micro_batch, op.tag.phase, whole.shape.numel());
        }
        return found;
      };
      EXPECT_EQ(gathers(codes, DType::kE4M3, true), gathers(weights, DType::kBF16, true));
      EXPECT_FALSE(gathers(codes, DType::kE4M3, true).empty());
      EXPECT_TRUE(gathers(codes, DType::kBF16, true).empty());
      EXPECT_EQ(gathers(codes, DType::kBF16, false), gathers(weights, DType::kBF16, false));

      ASSERT_EQ(codes.shards.size(), weights.shards.size());
      for (std::size_t s = 0; s < codes.shards.size(); ++s)
        EXPECT_EQ(codes.shards[s].size, weights.shards[s].size);

      // Units are found of parts, once a step; codes are made of parts, or turned.
      std::set<TensorId> found;
      for (const Op& op : codes.ops) {
        if (op.kind != OpKind::kQuantizeWeights) continue;
        for (int m = 0; m < quantize_weights::count(op); ++m) {
          const OpView v{codes, op};
          const Tensor& x = v.in(quantize_weights::in(m, quantize_weights::kX));
          EXPECT_EQ(x.dtype, op.tag.phase == Phase::kBackward && x.shape.rank() == 2
                                 ? DType::kE4M3
                                 : DType::kBF16);
          EXPECT_EQ(x.shape.rank() == 1, x.storage == Storage::kParameter);
          if (op.tag.phase != Phase::kSetup) continue;
          EXPECT_TRUE(found
                          .insert(op.outputs[static_cast<std::size_t>(
                              quantize_weights::out(m, quantize::kUnit))])
                          .second);
        }
      }
      EXPECT_FALSE(found.empty());
    }
  }
}

TEST(Fp8, CodesAreGatheredInStageThreeOfFp8Only) {
  StepOptions options = fp8_step();
  options.layout.gather_fp8 = true;
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    options.layout.zero = zero;
    EXPECT_EQ(validate(options).ok(), zero == 3);
  }
  // A rank alone gathers nothing.
  const Program alone = compile_step(options);
  options.layout.gather_fp8 = false;
  EXPECT_EQ(alone.ops.size(), compile_step(options).ops.size());
  options.layout.gather_fp8 = true;
  options.options.fp8 = false;
  const Status refused = validate(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("\"bf16\" and 3"), std::string::npos)
      << refused.error().message;
}

TEST(Rewriter, WaitsOutliveARemovedOp) {
  Program program;
  const auto add = [&](Stream stream, std::vector<OpId> waits) {
    Op op;
    op.kind = OpKind::kZero;
    op.stream = stream;
    op.waits = std::move(waits);
    program.ops.push_back(std::move(op));
  };
  add(Stream::kCompute, {});
  add(Stream::kDataComm, {0});
  add(Stream::kCompute, {});
  add(Stream::kDataComm, {});
  add(Stream::kCompute, {3});
  add(Stream::kDataComm, {4});
  add(Stream::kCompute, {});
  Rewriter rewriter(program);
  rewriter.remove(0);
  rewriter.remove(4);
  rewriter.apply();
  const std::vector<std::vector<OpId>> expected = {{}, {}, {}, {1}, {2}};
  ASSERT_EQ(program.ops.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(program.ops[i].waits, expected[i]);
}

// Splitting a batch into micro-batches changes nothing but the order of sums.
TEST(Schedule, MicroBatchesAddUpToTheBatch) {
  StepOptions options = tiny_step();
  options.batch.micro_batch = 4;
  const Batch whole = random_batch(options, 3);
  const Gradients together = gradients_of(options, {whole});
  for (const std::int64_t parts : {2, 4}) {
    StepOptions split = options;
    split.batch.micro_batch = 4 / parts;
    std::vector<Batch> batches;
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::int64_t rows = split.batch.micro_batch;
      Batch part;
      part.resize(rows, whole.source_length, whole.target_length);
      const auto copy = [&](const auto& from, auto& to, std::int64_t width) {
        to.assign(from.begin() + p * rows * width, from.begin() + (p + 1) * rows * width);
      };
      copy(whole.source, part.source, whole.source_length);
      copy(whole.target, part.target, whole.target_length);
      copy(whole.labels, part.labels, whole.target_length);
      copy(whole.lengths, part.lengths, 1);
      batches.push_back(std::move(part));
    }
    const Gradients added = gradients_of(split, batches);
    EXPECT_NEAR(added.loss, together.loss, 1e-6 * together.loss);
    for (std::size_t u = 0; u < added.units.size(); ++u) {
      const auto* a = reinterpret_cast<const float*>(added.units[u].data());
      const auto* b = reinterpret_cast<const float*>(together.units[u].data());
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < added.units[u].size() / 4; ++i) {
        difference += static_cast<double>(a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
        norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
      }
      EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << "weight " << u;
    }
  }
}

TEST(Schedule, DropoutOfAMicroBatchIsThatOfItsPlaceInTheBatch) {
  StepOptions options = tiny_step();
  options.model.dropout = 0.3;
  options.batch.micro_batch = 1;
  options.batch.padded = false;
  Batch one = random_batch(options, 4);
  one.lengths.clear();
  // Twice the same sequence: equal losses would mean equal masks.
  StepOptions twice = options;
  twice.accumulate = 2;
  const double single = gradients_of(options, {one}).loss;
  const double both = gradients_of(twice, {one, one}).loss;
  EXPECT_GT(std::abs(both - single), 1e-6);
  // And micro-batches of one draw what a micro-batch of two draws.
  StepOptions pair = options;
  pair.batch.micro_batch = 2;
  Batch two;
  two.resize(2, one.source_length, one.target_length);
  for (int copy = 0; copy < 2; ++copy) {
    std::copy(one.source.begin(), one.source.end(), two.source.begin() + copy * one.source_length);
    std::copy(one.target.begin(), one.target.end(), two.target.begin() + copy * one.target_length);
    std::copy(one.labels.begin(), one.labels.end(), two.labels.begin() + copy * one.target_length);
  }
  EXPECT_NEAR(gradients_of(pair, {two}).loss, both, 1e-6 * both);
}

// Random programs over several streams, in which every read waits for its writer: the plan must
// keep apart what may be alive at the same time, and the verifier, which does not know the plan's
// reasoning, must agree.
Program random_program(std::uint32_t seed, int ops, int streams) {
  std::mt19937 random(seed);
  Program program;
  Builder b(program);
  b.tag.unit = -1;
  std::vector<TensorId> values;
  std::vector<OpId> writer;
  const TensorId x = program.add_tensor({"x", {1}, DType::kF32, Storage::kIo});
  for (int i = 0; i < ops; ++i) {
    const bool fresh = values.size() < 3 || random() % 3 == 0;
    const auto stream = static_cast<Stream>(random() % static_cast<unsigned>(streams));
    if (fresh) {
      const Shape shape{1 + static_cast<std::int64_t>(random() % 2000)};
      const TensorId t =
          program.add_tensor({fmt::format("t{}", i), shape, DType::kF32, Storage::kActivation});
      b.emit("", OpKind::kZero, NoAttrs{}, {}, {t});
      values.push_back(t);
    } else {
      const std::size_t a = values.size() - 1 - random() % std::min<std::size_t>(values.size(), 8);
      std::size_t c = a;
      for (std::size_t k = 0; k < values.size(); ++k) {
        if (program.tensor(values[k]).shape == program.tensor(values[a]).shape && random() % 2 == 0)
          c = k;
      }
      values.push_back(
          b.emit_one(fmt::format("t{}", i), OpKind::kAdd, NoAttrs{}, {values[a], values[c]}));
      for (const std::size_t from : {a, c}) {
        if (program.ops[static_cast<std::size_t>(writer[from])].stream != stream) {
          program.ops.back().waits.push_back(writer[from]);
        }
      }
    }
    program.ops.back().stream = stream;
    writer.push_back(static_cast<OpId>(program.ops.size() - 1));
    if (random() % 5 == 0 && i > 2) {  // some more joins, so that lifetimes end
      program.ops.back().waits.push_back(static_cast<OpId>(random() % (program.ops.size() - 1)));
    }
  }
  static_cast<void>(x);
  return program;
}

TEST(MemoryPlan, IsSoundForRandomProgramsOverSeveralStreams) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    for (const int streams : {1, 2, 5}) {
      Program program = random_program(seed, 60, streams);
      ASSERT_TRUE(verify(program).empty()) << "seed " << seed << ": the generator is wrong";
      plan_memory(program, *make_backend({}));
      const auto findings = verify(program);
      ASSERT_TRUE(findings.empty())
          << "seed " << seed << ", " << streams << " streams: " << findings.front();
      const DryRun run = dry_run(program);
      ASSERT_GE(run.unused, 0);
    }
  }
}

TEST(MemoryPlan, WastesLittle) {
  for (const auto mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    StepOptions options = tiny_step();
    options.model = preset("mt5-base").value();
    options.batch = {8, 512, 114, false};
    options.recompute = mode;
    const DryRun run = dry_run(compile_step(options));
    EXPECT_LT(static_cast<double>(run.unused), 0.02 * static_cast<double>(run.arena_bytes));
  }
}

TEST(MemoryPlan, GradientsOfAUnitWaitForItsBackward) {
  // At the end of the forward no gradient exists but the head's: the peak of the activations and
  // that of the gradients fall apart.
  StepOptions options = tiny_step();
  options.batch = {64, 64, 32, false};
  const DryRun run = dry_run(compile_step(options));
  const auto gradient = static_cast<std::size_t>(Storage::kGradient);
  EXPECT_LT(run.at_peak[gradient], run.highest[gradient]);
}

TEST(Offload, MovesTheShareAskedFor) {
  StepOptions options = tiny_step();
  options.model = preset("mt5-base").value();
  options.batch = {1, 64, 32, false};
  options.options.dtype = options.options.grad_dtype = DType::kBF16;
  for (const char* optimizer : {"adamw", "adafactor"}) {
    options.optimizer.name = optimizer;
    options.optimizer.offload = 0;
    const DryRun here = dry_run(compile_step(options));
    EXPECT_EQ(here.host_bytes, 0);
    const auto state = static_cast<std::size_t>(Storage::kOptimizer);
    const auto bytes_per_weight = options.optimizer.name == "adamw" ? 12.0 : 4.0;
    const double all = bytes_per_weight * static_cast<double>(options.model.parameters());
    for (const double share : {0.25, 0.5, 1.0}) {
      options.optimizer.offload = share;
      const DryRun away = dry_run(compile_step(options));
      // Whole units move; the embedding and the head, one third of the model each, are what it
      // cannot be exact about.
      EXPECT_NEAR(static_cast<double>(away.host_bytes), share * all, share == 1 ? 1e4 : 0.18 * all);
      EXPECT_NEAR(static_cast<double>(away.host_bytes + away.highest[state]),
                  static_cast<double>(here.highest[state]), 1e4);
    }
  }
}

// A unit of more than 2^24 elements visits in pieces, and its update is the same to the bit.
TEST(Offload, UpdatesALargeUnitInPieces) {
  StepOptions options = tiny_step();
  options.model.vocab_size = 270'001;
  options.batch = {1, 8, 4, true};
  ASSERT_GT(options.model.vocab_size * options.model.d_model, std::int64_t{1} << 24);
  const auto updated = [&](double share) {
    options.optimizer.offload = share;
    const Program program = compile_step(options);
    const auto world = make_single_world();
    const auto executor = make_cpu_executor(program, *world);
    ModelState state(*executor.value(), *world, options.model);
    state.initialise(7);
    EXPECT_TRUE(feed(*executor.value(), 0, random_batch(options, 3), options).ok());
    for (int step = 1; step <= 2; ++step) EXPECT_TRUE(run_step(*executor.value(), step, 1e-2).ok());
    return state.gather_weight("shared.weight");
  };
  const std::vector<float> here = updated(0);
  EXPECT_TRUE(updated(1) == here);
}

// Three pieces of state at most are on the device together, however many there are.
TEST(Offload, VisitorsAreFew) {
  StepOptions options = tiny_step();
  options.model = preset("mt5-base").value();
  options.batch = {1, 64, 32, false};
  options.options.dtype = options.options.grad_dtype = DType::kBF16;
  options.optimizer.offload = 1;
  const Program program = compile_step(options);
  const auto visiting = static_cast<std::size_t>(Storage::kComm);
  EXPECT_LE(dry_run(program).highest[visiting], 3 * 12 * (std::int64_t{1} << 24));
  // And copies do not hold up the computation before the update.
  for (const Op& op : program.ops) {
    EXPECT_TRUE(op.kind != OpKind::kCopy || op.tag.phase == Phase::kUpdate);
  }
}

TEST(DryRun, AddsUpToTheArena) {
  for (const char* name : {"tiny", "mini", "mt5-small"}) {
    StepOptions options = tiny_step();
    options.model = preset(name).value();
    options.accumulate = 2;
    const DryRun run = dry_run(compile_step(options));
    std::int64_t sum = run.unused;
    for (const std::int64_t bytes : run.at_peak) sum += bytes;
    EXPECT_EQ(sum, run.arena_bytes);
    EXPECT_GE(run.unused, 0);
  }
}

// Two dozen layers that are redone, so that little but their gradients takes memory.
TEST(EarlyUpdate, GradientsLiveForAMomentWhereClippingIsOff) {
  StepOptions options = testing::tiny_step();
  options.model.encoder_layers = options.model.decoder_layers = 12;
  options.recompute = Recompute::kFull;
  const Program late = compile_step(options);
  options.optimizer.clip_norm = 0;
  const Program early = compile_step(options);
  std::int64_t gradients = 0;
  for (const Shard& shard : early.shards) gradients += early.tensor(shard.grad).bytes();
  EXPECT_LT(early.arena_bytes + gradients * 8 / 10, late.arena_bytes);
  // A step that may be skipped is judged by all gradients before any is used.
  options.limited = true;
  EXPECT_GE(compile_step(options).arena_bytes, late.arena_bytes);
}

}  // namespace
}  // namespace quintet
