// The heart of the matter: whatever the layout, the same seed gives the same training. Each case
// trains a small model for five steps on a part of the MPI world and compares losses and weights
// with a rank alone; repeats itself bit for bit; and takes exactly the memory and sends exactly the
// bytes that its program says. On the CPU, or where QUINTET_TEST_DEVICE is cuda on GPUs that talk
// through NCCL or its stand-in (nccl_stand_in.cu), whose steps are captured graphs.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "runtime/dry_run.h"
#include "tests/parallel/world.h"
#include "train/feed.h"
#include "train/model_state.h"
#include "train/step_program.h"

namespace quintet {
namespace {

using testing::test_world;

constexpr std::int64_t kGlobalBatch = 16, kSource = 12, kTarget = 8;
constexpr int kSteps = 5;

struct Case {
  std::int32_t ranks = 1, tp = 1, pp = 1;
  std::int64_t zero = 0;
  std::int32_t accumulate = 1;
  const char* schedule = "1f1b";
  std::int64_t interleave = 1;
  Recompute recompute = Recompute::kNone;
  const char* optimizer = "adamw";
  double dropout = 0;
  DType dtype = DType::kF32;
  bool tied = false;
  std::int64_t prefetch = 1, bucket = 0, shard_group = 0, whole_below = 200;
  const char* order = "tp-dp-pp";
  double offload = 0;
  std::int64_t base_width = 0;
  const char* moments = "fp32";
  bool fp8 = false;
  double clip = 0.7;
  bool gather_fp8 = false;
};

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  constexpr const char* kRecompute[] = {"", "_selective", "_full"};
  std::string name =
      fmt::format("r{}_tp{}_pp{}_zero{}_x{}", c.ranks, c.tp, c.pp, c.zero, c.accumulate);
  if (c.interleave > 1) name += fmt::format("_interleave{}", c.interleave);
  name += kRecompute[static_cast<int>(c.recompute)];
  if (std::string(c.optimizer) != "adamw") name += "_adafactor";
  if (c.dropout > 0) name += "_dropout";
  if (c.dtype == DType::kBF16) name += c.fp8 ? "_fp8" : "_bf16";
  if (c.tied) name += "_tied";
  if (c.prefetch != 1) name += fmt::format("_prefetch{}", c.prefetch);
  if (c.bucket > 0) name += "_bucket";
  if (c.shard_group > 0) name += fmt::format("_group{}", c.shard_group);
  if (c.whole_below != 200) name += fmt::format("_whole{}", c.whole_below);
  if (c.base_width > 0) name += fmt::format("_base{}", c.base_width);
  if (std::string(c.moments) != "fp32") name += fmt::format("_{}_moments", c.moments);
  if (c.offload > 0) name += c.offload < 1 ? "_half_offloaded" : "_offloaded";
  for (const char* o = c.order; std::string(c.order) != "tp-dp-pp" && *o != '\0'; ++o) {
    name += *o == '-' ? '_' : *o;
  }
  return name + fmt::format("_{}", info.index);
}

T5Config small_model(const Case& c) {
  T5Config model = preset("tiny").value();
  model.vocab_size = 130;  // not divisible by 4: the last rank has less
  model.d_model = 24;
  model.d_kv = 6;
  model.num_heads = 4;
  model.d_ff = 20;
  model.encoder_layers = 3;
  model.decoder_layers = 3;
  model.dropout = c.dropout;
  model.tied_head = c.tied;
  model.base_width = c.base_width;
  if (c.fp8) {  // multiples of 16, on two tensor-parallel ranks, too
    model.d_model = 32;
    model.d_kv = 16;
    model.d_ff = 64;
  }
  return model;
}

StepOptions options_of(const Case& c) {
  StepOptions options;
  options.model = small_model(c);
  LayoutConfig& layout = options.layout;
  layout.tp = c.tp;
  layout.pp = c.pp;
  layout.zero = c.zero;
  layout.schedule = c.schedule;
  layout.interleave = c.interleave;
  layout.prefetch = c.prefetch;
  layout.bucket = c.bucket;
  layout.shard_group = c.shard_group;
  layout.gather_fp8 = c.gather_fp8;
  layout.whole_below = c.whole_below;
  layout.order = c.order;
  options.grid = make_grid(c.ranks, layout).value();
  options.accumulate = c.accumulate;
  options.batch = {kGlobalBatch / c.accumulate / options.grid.dp, kSource, kTarget, true};
  options.options.dtype = options.options.grad_dtype = c.dtype;
  options.options.fp8 = c.fp8;
  options.options.z_loss = 1e-3;
  options.options.label_smoothing = 0.1;
  options.options.seed = 3;
  options.recompute = c.recompute;
  options.optimizer.name = c.optimizer;
  options.optimizer.offload = c.offload;
  options.optimizer.moments = c.moments;
  options.optimizer.clip_norm = c.clip;
  options.optimizer.weight_decay = 0.01;
  options.optimizer.decay_table = {"*layer_norm*=0", "*.v.weight=0.1"};
  options.optimizer.ema = 0.5;
  options.target.threads = 1;
  options.target.device = testing::tests_cuda() ? Device::kCuda : Device::kCpu;
  return options;
}

// Example `number` of the stream, the same for every layout.
void make_example(std::int64_t number, std::int64_t row, Batch& batch) {
  PhiloxSequence random(11, static_cast<std::uint64_t>(number));
  const auto length = static_cast<std::int64_t>(kSource - random.below(4));
  batch.lengths[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(length);
  for (std::int64_t i = 0; i < kSource; ++i) {
    batch.source[static_cast<std::size_t>(row * kSource + i)] =
        i < length ? static_cast<std::int32_t>(random.below(130)) : 0;
  }
  const auto labels = static_cast<std::int64_t>(kTarget - random.below(3));
  for (std::int64_t i = 0; i < kTarget; ++i) {
    batch.labels[static_cast<std::size_t>(row * kTarget + i)] =
        i < labels ? static_cast<std::int32_t>(random.below(130)) : -100;
  }
}

struct Training {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;  // on rank 0
};

Training train_case(const Case& c, World& world) {
  const StepOptions options = options_of(c);
  const Status valid = validate(options);
  EXPECT_TRUE(valid.ok()) << valid.error().message;
  const Program program = compile_step(options, world.rank());
  const auto executor = make_executor(program, world);
  EXPECT_EQ(executor.value()->arena_bytes(), dry_run(program).arena_bytes);
  ModelState state(*executor.value(), world, options.model);
  state.initialise(5);
  Training training;
  Batch batch;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    for (std::int32_t m = 0; m < options.accumulate; ++m) {
      batch.resize(options.batch.micro_batch, kSource, kTarget);
      batch.lengths.assign(static_cast<std::size_t>(options.batch.micro_batch), 0);
      const std::int64_t first = (step - 1) * options.global_batch() +
                                 options.batches().first_sample(0, m, program.place.dp);
      for (std::int64_t row = 0; row < options.batch.micro_batch; ++row)
        make_example(first + row, row, batch);
      shift_right(batch.labels, kTarget, 0, 0, batch.target);
      EXPECT_TRUE(feed(*executor.value(), m, batch, options).ok());
    }
    const StepResult result = run_step(*executor.value(), step, 3e-3).value();
    training.losses.push_back(result.loss + result.z_loss);
    training.norms.push_back(result.grad_norm);
  }
  // The bytes that left this rank are those the program says.
  const std::vector<std::int64_t> sent = executor.value()->bytes_sent();
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i], kSteps * bytes_sent_by(executor.value()->backend(), program, program.ops[i]))
        << name_of(program.ops[i].kind);
  }
  for (const Weight& weight : state.weights()) {
    training.weights[weight.name] = state.gather_weight(weight.name);
    training.weights[weight.name + ".ema"] = state.gather_mean(weight.name);
  }
  return training;
}

// What a rank alone gets, for comparison; computed once for each kind of model.
const Training& alone(const Case& c) {
  static std::map<std::tuple<std::string, std::string, double, DType, bool, bool, std::int64_t>,
                  Training>
      known;
  const auto key = std::tuple(std::string(c.optimizer), std::string(c.moments), c.dropout, c.dtype,
                              c.fp8, c.tied, c.base_width);
  const auto [at, is_new] = known.try_emplace(key);
  if (is_new) {
    Case single;
    single.optimizer = c.optimizer;
    single.dropout = c.dropout;
    single.dtype = c.dtype;
    single.fp8 = c.fp8;
    single.tied = c.tied;
    single.base_width = c.base_width;
    single.moments = c.moments;
    const auto world = make_single_world();
    at->second = train_case(single, *world);
  }
  return at->second;
}

class LayoutTest : public ::testing::TestWithParam<Case> {};

TEST_P(LayoutTest, TrainsLikeARankAlone) {
  const Case& c = GetParam();
  if (c.ranks > test_world().size()) GTEST_SKIP() << "needs " << c.ranks << " ranks";
  const std::unique_ptr<World> world = make_subworld(test_world(), c.ranks);
  if (world == nullptr) return;  // this rank has no part in it
  const Training got = train_case(c, *world);
  const Training& want = alone(c);
  // fp32: only the order of sums differs. bf16: each rank rounds its partial sums to 8 bits, so
  // values differ by some 2^-9 relative wherever sums are split; a loss averages over many. Moments
  // in eight bits: one that is rounded otherwise differs by an eighth, and its weight's step by as
  // much; a matrix has one such element or none. fp8: where a difference of bf16's takes an operand
  // across a threshold, it differs by an eighth; and AdamW's first steps are as long whatever the
  // gradient's size, so that an element whose sign is in doubt counts as much as any.
  const bool coded = std::string(c.moments) == "8bit";
  const double loss_bound = c.fp8 ? 1e-2 : c.dtype == DType::kF32 ? 1e-5 : 2e-3;
  const double weight_bound = c.fp8 ? 8e-2 : c.dtype == DType::kBF16 ? 2e-2 : coded ? 1e-3 : 1e-4;
  for (int step = 0; step < kSteps; ++step) {
    const auto s = static_cast<std::size_t>(step);
    EXPECT_NEAR(got.losses[s], want.losses[s], loss_bound * want.losses[s]) << "step " << step + 1;
    EXPECT_NEAR(got.norms[s], want.norms[s], 100 * loss_bound * want.norms[s])
        << "step " << step + 1;
  }
  if (world->rank() == 0) {
    for (const auto& [name, values] : want.weights) {
      const std::vector<float>& mine = got.weights.at(name);
      ASSERT_EQ(mine.size(), values.size()) << name;
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(static_cast<double>(mine[i]) - static_cast<double>(values[i]), 2);
        norm += std::pow(static_cast<double>(values[i]), 2);
      }
      EXPECT_LE(std::sqrt(difference), weight_bound * std::sqrt(norm)) << name;
    }
  }
  // Again, and every bit is the same.
  const Training again = train_case(c, *world);
  EXPECT_EQ(again.losses, got.losses);
  EXPECT_EQ(again.norms, got.norms);
  EXPECT_TRUE(again.weights == got.weights);
}

// Without clipping units are updated in the middle of the backward; with a threshold beyond all
// gradients they are updated after it, by the same factor of one.
class EarlyUpdateTest : public ::testing::TestWithParam<Case> {};

TEST_P(EarlyUpdateTest, KeepsEveryBitInLessMemory) {
  Case early = GetParam(), late = GetParam();
  early.clip = 0;
  late.clip = 1e30;
  if (early.ranks > test_world().size()) GTEST_SKIP() << "needs " << early.ranks << " ranks";
  const std::unique_ptr<World> world = make_subworld(test_world(), early.ranks);
  if (world == nullptr) return;  // this rank has no part in it
  if (world->rank() == 0) {
    EXPECT_EQ(verify_all_ranks(options_of(early)), std::vector<std::string>{});
  }
  const Training got = train_case(early, *world), want = train_case(late, *world);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_TRUE(got.weights == want.weights);

  const Program program = compile_step(options_of(early), world->rank());
  const auto phase_at = [&](Phase phase, const auto& begin, const auto& end) {
    return std::find_if(begin, end, [&](const Op& op) {
      return op.tag.phase == phase && op.stream == Stream::kCompute;
    });
  };
  const auto first_update = phase_at(Phase::kUpdate, program.ops.begin(), program.ops.end());
  const auto last_backward =
      phase_at(Phase::kBackward, program.ops.rbegin(), program.ops.rend()).base();
  if (early.pp == 1) {
    EXPECT_LT(first_update, last_backward);
  }
  // The factor of one is there from the beginning. Offloaded state is a guest among activations
  // now, and not where they were.
  if (early.offload == 0) {
    EXPECT_LE(program.arena_bytes, compile_step(options_of(late), world->rank()).arena_bytes + 512);
  }
}

// Codes gathered instead of weights: every bit of the training is the same, with clipping and
// moments and whatever else is a rank's own. In half the bytes, but for the embedding, the head and
// the little that is agreed on.
class GatherFp8Test : public ::testing::TestWithParam<Case> {};

TEST_P(GatherFp8Test, KeepsEveryBitInHalfTheBytes) {
  Case codes = GetParam();
  codes.zero = 3;
  codes.dtype = DType::kBF16;
  codes.fp8 = true;
  Case weights = codes;
  codes.gather_fp8 = true;
  if (codes.ranks > test_world().size()) GTEST_SKIP() << "needs " << codes.ranks << " ranks";
  const std::unique_ptr<World> world = make_subworld(test_world(), codes.ranks);
  if (world == nullptr) return;  // this rank has no part in it
  if (world->rank() == 0) {
    EXPECT_EQ(verify_all_ranks(options_of(codes)), std::vector<std::string>{});
  }
  const Training got = train_case(codes, *world), want = train_case(weights, *world);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_TRUE(got.weights == want.weights);

  const auto gathered = [&](const Case& c) {
    const Program program = compile_step(options_of(c), world->rank());
    std::int64_t bytes = 0;
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kAllGather || op.tag.method != Method::kData) continue;
      const std::string& unit = program.units[static_cast<std::size_t>(op.tag.unit)].name;
      if (std::isdigit(static_cast<unsigned char>(unit.back())) != 0)
        bytes += program.tensor(op.outputs[0]).bytes();
    }
    return bytes;
  };
  EXPECT_GT(gathered(codes), 0);
  EXPECT_EQ(2 * gathered(codes), gathered(weights));
}

// What the gradient noise scale is made from: each data-parallel rank's first micro-batch, its
// gradient's squared norm as a rank alone has it.
class NoiseLayoutTest : public ::testing::TestWithParam<Case> {};

double square_of_one(const Case& c, std::int64_t first, std::int64_t sequences, double labels) {
  Case single;
  single.accumulate = 1;
  single.tied = c.tied;
  StepOptions options = options_of(single);
  options.batch.micro_batch = sequences;
  options.options.z_loss = 0;
  const auto world = make_single_world();
  const Program program = compile_step(options, 0);
  const auto executor = make_executor(program, *world);
  ModelState state(*executor.value(), *world, options.model);
  state.initialise(5);
  Batch batch;
  batch.resize(sequences, kSource, kTarget);
  batch.lengths.assign(static_cast<std::size_t>(sequences), 0);
  for (std::int64_t row = 0; row < sequences; ++row) make_example(first + row, row, batch);
  shift_right(batch.labels, kTarget, 0, 0, batch.target);
  EXPECT_TRUE(feed(*executor.value(), 0, batch, options).ok());
  const double norm = run_step(*executor.value(), 1, 0).value().grad_norm;
  const auto own = static_cast<double>(std::count_if(batch.labels.begin(), batch.labels.end(),
                                                     [](std::int32_t id) { return id >= 0; }));
  return std::pow(norm * own / labels, 2);  // a mean over all labels of the step, not its own
}

TEST_P(NoiseLayoutTest, MeasuresTheFirstMicroBatches) {
  const Case& c = GetParam();
  if (c.ranks > test_world().size()) GTEST_SKIP() << "needs " << c.ranks << " ranks";
  const std::unique_ptr<World> world = make_subworld(test_world(), c.ranks);
  if (world == nullptr) return;  // this rank has no part in it
  StepOptions options = options_of(c);
  options.noise = true;
  options.options.z_loss = 0;
  ASSERT_TRUE(validate(options).ok());
  if (world->rank() == 0) {
    EXPECT_TRUE(verify_all_ranks(options).empty());
  }
  const Program program = compile_step(options, world->rank());
  const auto executor = make_executor(program, *world);
  ModelState state(*executor.value(), *world, options.model);
  state.initialise(5);
  Batch batch;
  batch.resize(kGlobalBatch, kSource, kTarget);
  batch.lengths.assign(kGlobalBatch, 0);
  for (std::int64_t row = 0; row < kGlobalBatch; ++row) make_example(row, row, batch);
  const auto labels = static_cast<double>(std::count_if(batch.labels.begin(), batch.labels.end(),
                                                        [](std::int32_t id) { return id >= 0; }));
  double want = 0;
  for (std::int32_t dp = 0; dp < options.grid.dp; ++dp)
    want += square_of_one(c, options.batches().first_sample(0, 0, dp), options.batch.micro_batch,
                          labels);
  for (std::int32_t m = 0; m < options.accumulate; ++m) {
    batch.resize(options.batch.micro_batch, kSource, kTarget);
    batch.lengths.assign(static_cast<std::size_t>(options.batch.micro_batch), 0);
    const std::int64_t first = options.batches().first_sample(0, m, program.place.dp);
    for (std::int64_t row = 0; row < options.batch.micro_batch; ++row)
      make_example(first + row, row, batch);
    shift_right(batch.labels, kTarget, 0, 0, batch.target);
    EXPECT_TRUE(feed(*executor.value(), m, batch, options).ok());
  }
  const StepResult result = run_step(*executor.value(), 1, 0).value();
  EXPECT_NEAR(result.micro_square, want, 1e-4 * want);
}

INSTANTIATE_TEST_SUITE_P(
    Noise, NoiseLayoutTest,
    ::testing::Values(Case{.accumulate = 4}, Case{.ranks = 2, .zero = 0},
                      Case{.ranks = 2, .zero = 1, .accumulate = 2},
                      Case{.ranks = 4, .zero = 2, .accumulate = 2, .tied = true},
                      Case{.ranks = 4, .zero = 3, .bucket = 5000},
                      Case{.ranks = 4, .zero = 3, .accumulate = 2, .shard_group = 2},
                      Case{.ranks = 2, .tp = 2, .accumulate = 2},
                      Case{.ranks = 8, .tp = 2, .zero = 3, .accumulate = 2}),
    name_of_case);

constexpr auto kSel = Recompute::kSelective, kFull = Recompute::kFull;

INSTANTIATE_TEST_SUITE_P(
    Early, EarlyUpdateTest,
    ::testing::Values(
        Case{}, Case{.accumulate = 2, .dtype = DType::kBF16, .moments = "8bit"},
        Case{.optimizer = "adafactor", .tied = true}, Case{.dtype = DType::kBF16, .offload = 1},
        Case{.ranks = 2, .zero = 0}, Case{.ranks = 2, .zero = 1}, Case{.ranks = 4, .zero = 2},
        Case{.ranks = 4, .zero = 3, .offload = 0.5},
        Case{.ranks = 4, .zero = 3, .accumulate = 2, .optimizer = "adafactor", .bucket = 5000},
        Case{.ranks = 8, .zero = 3, .recompute = kFull, .shard_group = 2},
        Case{.ranks = 4, .tp = 2, .zero = 1, .optimizer = "adafactor", .tied = true},
        Case{.ranks = 2, .pp = 2, .accumulate = 4, .tied = true},
        Case{.ranks = 8,
             .tp = 2,
             .pp = 2,
             .zero = 3,
             .accumulate = 2,
             .schedule = "interleaved",
             .interleave = 2,
             .optimizer = "adafactor",
             .tied = true}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    All, GatherFp8Test,
    ::testing::Values(
        Case{.ranks = 2}, Case{.ranks = 4, .recompute = kSel},
        Case{.ranks = 2, .accumulate = 2, .recompute = kFull, .dropout = 0.1, .prefetch = 0},
        Case{.ranks = 4, .prefetch = 2, .shard_group = 2},
        Case{.ranks = 4, .bucket = 25000, .moments = "8bit"},
        Case{.ranks = 4, .tp = 2, .optimizer = "adafactor", .tied = true},
        Case{.ranks = 4, .tp = 2, .recompute = kFull, .prefetch = 0, .offload = 0.5, .clip = 0},
        Case{.ranks = 4, .pp = 2, .accumulate = 2},
        Case{.ranks = 4,
             .pp = 2,
             .accumulate = 2,
             .schedule = "interleaved",
             .interleave = 2,
             .recompute = kSel,
             .prefetch = 2},
        Case{.ranks = 8, .tp = 2, .pp = 2, .accumulate = 2, .recompute = kFull, .whole_below = 0}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Data, LayoutTest,
    ::testing::Values(
        Case{.ranks = 2, .zero = 0}, Case{.ranks = 2, .zero = 1}, Case{.ranks = 2, .zero = 2},
        Case{.ranks = 2, .zero = 3}, Case{.ranks = 4, .zero = 0, .accumulate = 2},
        Case{.ranks = 4, .zero = 1, .accumulate = 2, .dropout = 0.1},
        Case{.ranks = 4, .zero = 2, .accumulate = 4, .recompute = kSel},
        Case{.ranks = 4, .zero = 3, .accumulate = 2, .recompute = kFull, .dropout = 0.1},
        Case{.ranks = 8, .zero = 3, .accumulate = 2},
        Case{.ranks = 4, .zero = 0, .optimizer = "adafactor"},
        Case{.ranks = 4, .zero = 1, .optimizer = "adafactor"},
        Case{.ranks = 4, .zero = 2, .accumulate = 2, .optimizer = "adafactor"},
        Case{.ranks = 4, .zero = 3, .optimizer = "adafactor", .dropout = 0.1},
        Case{.ranks = 4, .zero = 3, .prefetch = 0}, Case{.ranks = 4, .zero = 3, .prefetch = 3},
        Case{.ranks = 4, .zero = 2, .accumulate = 2, .bucket = 5000},
        Case{.ranks = 4, .zero = 3, .bucket = 5000}, Case{.ranks = 4, .zero = 3, .shard_group = 2},
        Case{.ranks = 8, .zero = 3, .accumulate = 2, .shard_group = 2},
        Case{.ranks = 4, .zero = 1, .shard_group = 2},
        Case{.ranks = 2, .zero = 3, .whole_below = 1000000},
        Case{.ranks = 4, .zero = 3, .tied = true}),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    Tensor, LayoutTest,
    ::testing::Values(
        Case{.ranks = 2, .tp = 2}, Case{.ranks = 4, .tp = 4},
        Case{.ranks = 2, .tp = 2, .accumulate = 2, .recompute = kFull, .dropout = 0.1},
        Case{.ranks = 4, .tp = 4, .recompute = kSel, .dropout = 0.1},
        Case{.ranks = 2, .tp = 2, .optimizer = "adafactor"},
        Case{.ranks = 4, .tp = 4, .optimizer = "adafactor", .tied = true},
        Case{.ranks = 4, .tp = 2, .zero = 0}, Case{.ranks = 4, .tp = 2, .zero = 1},
        Case{.ranks = 4, .tp = 2, .zero = 2, .accumulate = 2},
        Case{.ranks = 4, .tp = 2, .zero = 3, .recompute = kFull},
        Case{.ranks = 4, .tp = 2, .zero = 3, .optimizer = "adafactor", .order = "dp-tp-pp"},
        Case{.ranks = 8, .tp = 4, .zero = 2}),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    Pipeline, LayoutTest,
    ::testing::Values(
        Case{.ranks = 2, .pp = 2, .accumulate = 4}, Case{.ranks = 2, .pp = 2},
        Case{.ranks = 4, .pp = 4, .accumulate = 4},
        Case{.ranks = 3, .pp = 3, .accumulate = 2, .dropout = 0.1},
        Case{.ranks = 4, .pp = 4, .accumulate = 8, .recompute = kFull, .dropout = 0.1},
        Case{.ranks = 2, .pp = 2, .accumulate = 4, .recompute = kSel, .optimizer = "adafactor"},
        Case{.ranks = 2, .pp = 2, .accumulate = 4, .schedule = "interleaved", .interleave = 2},
        Case{.ranks = 2,
             .pp = 2,
             .accumulate = 8,
             .schedule = "interleaved",
             .interleave = 3,
             .recompute = kFull},
        Case{.ranks = 3, .pp = 3, .accumulate = 16, .schedule = "1f1b"},
        Case{.ranks = 4, .pp = 4, .accumulate = 4, .tied = true},
        Case{.ranks = 4, .pp = 2, .zero = 0, .accumulate = 2},
        Case{.ranks = 4, .pp = 2, .zero = 1, .accumulate = 4},
        Case{.ranks = 4, .pp = 2, .zero = 2, .accumulate = 4},
        Case{.ranks = 4, .pp = 2, .zero = 3, .accumulate = 4},
        Case{.ranks = 8,
             .pp = 2,
             .zero = 3,
             .accumulate = 2,
             .schedule = "interleaved",
             .interleave = 2},
        Case{.ranks = 4,
             .pp = 2,
             .zero = 3,
             .accumulate = 2,
             .optimizer = "adafactor",
             .tied = true}),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    All, LayoutTest,
    ::testing::Values(
        Case{.ranks = 8, .tp = 2, .pp = 2, .zero = 0, .accumulate = 2},
        Case{.ranks = 8,
             .tp = 2,
             .pp = 2,
             .zero = 1,
             .accumulate = 2,
             .recompute = kSel,
             .dropout = 0.1},
        Case{.ranks = 8, .tp = 2, .pp = 2, .zero = 2, .accumulate = 4, .optimizer = "adafactor"},
        Case{.ranks = 8,
             .tp = 2,
             .pp = 2,
             .zero = 3,
             .accumulate = 4,
             .recompute = kFull,
             .dropout = 0.1},
        Case{.ranks = 8, .tp = 2, .pp = 4, .accumulate = 4},
        Case{.ranks = 8, .tp = 4, .pp = 2, .accumulate = 4},
        Case{.ranks = 4,
             .tp = 2,
             .pp = 2,
             .accumulate = 4,
             .schedule = "interleaved",
             .interleave = 2},
        Case{.ranks = 8,
             .tp = 2,
             .pp = 2,
             .zero = 3,
             .accumulate = 2,
             .schedule = "interleaved",
             .interleave = 2,
             .optimizer = "adafactor",
             .dropout = 0.1,
             .tied = true},
        Case{.ranks = 8, .tp = 2, .pp = 2, .zero = 3, .accumulate = 2, .order = "pp-dp-tp"}),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    Offload, LayoutTest,
    ::testing::Values(
        Case{.offload = 1}, Case{.optimizer = "adafactor", .dtype = DType::kBF16, .offload = 0.5},
        Case{.ranks = 2, .zero = 1, .offload = 1},
        Case{.ranks = 4, .zero = 3, .accumulate = 2, .dtype = DType::kBF16, .offload = 1},
        Case{.ranks = 4, .zero = 2, .optimizer = "adafactor", .offload = 0.5},
        Case{.ranks = 8, .tp = 2, .pp = 2, .zero = 3, .accumulate = 2, .offload = 0.5}),
    name_of_case);
// Rates by weight (model.base_width): shards are cut into runs of one rate.
INSTANTIATE_TEST_SUITE_P(
    Width, LayoutTest,
    ::testing::Values(
        Case{.ranks = 2, .zero = 0, .base_width = 6}, Case{.ranks = 2, .zero = 1, .base_width = 6},
        Case{.ranks = 4, .zero = 2, .accumulate = 2, .base_width = 6},
        Case{.ranks = 4, .zero = 3, .bucket = 5000, .base_width = 6},
        Case{.ranks = 4, .zero = 3, .optimizer = "adafactor", .tied = true, .base_width = 6},
        Case{.ranks = 2, .tp = 2, .base_width = 6},
        Case{.ranks = 4, .tp = 4, .optimizer = "adafactor", .base_width = 6},
        Case{.ranks = 2, .pp = 2, .accumulate = 4, .tied = true, .base_width = 6},
        Case{.dtype = DType::kBF16, .offload = 1, .base_width = 6},
        Case{.ranks = 8,
             .tp = 2,
             .pp = 2,
             .zero = 3,
             .accumulate = 2,
             .offload = 0.5,
             .base_width = 6}),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(
    MixedPrecision, LayoutTest,
    ::testing::Values(Case{.ranks = 2, .zero = 1, .dtype = DType::kBF16},
                      Case{.ranks = 4, .zero = 3, .accumulate = 2, .dtype = DType::kBF16},
                      Case{.ranks = 2, .tp = 2, .dtype = DType::kBF16},
                      Case{.ranks = 2, .pp = 2, .accumulate = 4, .dtype = DType::kBF16},
                      Case{.ranks = 8,
                           .tp = 2,
                           .pp = 2,
                           .zero = 2,
                           .accumulate = 4,
                           .recompute = kFull,
                           .dtype = DType::kBF16}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Fp8, LayoutTest,
    ::testing::Values(
        Case{.ranks = 2, .zero = 0, .dtype = DType::kBF16, .fp8 = true},
        Case{.ranks = 4, .zero = 3, .dtype = DType::kBF16, .fp8 = true},
        Case{.ranks = 2,
             .zero = 1,
             .accumulate = 2,
             .recompute = kFull,
             .dtype = DType::kBF16,
             .fp8 = true},
        Case{.ranks = 2, .tp = 2, .recompute = kSel, .dtype = DType::kBF16, .fp8 = true},
        Case{.ranks = 2, .pp = 2, .accumulate = 4, .dtype = DType::kBF16, .fp8 = true},
        Case{.ranks = 2,
             .pp = 2,
             .accumulate = 4,
             .schedule = "interleaved",
             .interleave = 3,
             .recompute = kSel,
             .dtype = DType::kBF16,
             .fp8 = true},
        Case{.ranks = 8,
             .tp = 2,
             .pp = 2,
             .zero = 2,
             .accumulate = 2,
             .optimizer = "adafactor",
             .dtype = DType::kBF16,
             .fp8 = true}),
    name_of_case);

// Each element of a moment is rounded by the random bits of its place in the weight: alike under
// all layouts, but where a sum in another order takes it across the threshold.
INSTANTIATE_TEST_SUITE_P(
    SmallMoments, LayoutTest,
    ::testing::Values(
        Case{.ranks = 2, .zero = 0, .moments = "bf16"},
        Case{.ranks = 2, .zero = 1, .moments = "bf16"},
        Case{.ranks = 4, .zero = 3, .accumulate = 2, .bucket = 5000, .moments = "bf16"},
        Case{.ranks = 4, .tp = 4, .moments = "bf16"},
        Case{.ranks = 2, .pp = 2, .accumulate = 4, .tied = true, .moments = "bf16"},
        Case{.ranks = 2, .zero = 1, .moments = "8bit"},
        Case{.ranks = 4, .zero = 2, .accumulate = 2, .whole_below = 0, .moments = "8bit"},
        Case{.ranks = 4, .zero = 3, .accumulate = 2, .bucket = 5000, .moments = "8bit"},
        Case{.ranks = 4, .zero = 3, .shard_group = 2, .offload = 0.5, .moments = "8bit"},
        Case{.ranks = 2, .tp = 2, .moments = "8bit"},
        Case{.ranks = 2, .pp = 2, .accumulate = 4, .tied = true, .moments = "8bit"},
        Case{.offload = 1, .moments = "8bit"},
        Case{.ranks = 4, .tp = 2, .zero = 3, .dtype = DType::kBF16, .moments = "8bit"},
        Case{.ranks = 8,
             .tp = 2,
             .pp = 2,
             .zero = 3,
             .accumulate = 2,
             .whole_below = 0,
             .offload = 1,
             .moments = "8bit"}),
    name_of_case);

}  // namespace
}  // namespace quintet
