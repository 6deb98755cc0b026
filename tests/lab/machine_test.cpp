// Machine files: what is read, what is refused, and what follows for ops nobody measured.
#include "lab/machine.h"

#include <cmath>

#include <gtest/gtest.h>

#include "train/run_config.h"

namespace quintet {
namespace {

const char kMachineText[] = R"([machine]
name = "made up"
[device]
kind = "cuda"
sm = 90
memory_gib = 80.0
cache_mib = 50.0
fp32_tflop_per_s = 60.0
bf16_tflop_per_s = 1000.0
memory_gb_per_s = 4000.0
copy_in_gb_per_s = 50.0
copy_out_gb_per_s = 40.0
copy_latency_us = 10.0
op_us = 2.0
launch_us = 4.0
measured = ["memory_gb_per_s", "copy_in_gb_per_s"]
[node]
nodes = 2
devices = 8
cores = 64
host_memory_gib = 1024.0
[inside]
latency_us = 2.0
gb_per_s = 300.0
links = 1
[between]
latency_us = 5.0
gb_per_s = 25.0
links = 8
[sharing]
beside_ranks = ["2 memory 1.5", "4 memory 2.5"]
[collectives]
measured_us = [
  "all_reduce inside 4 1000 10",
  "all_reduce inside 4 1000000 110",
]
[ops]
measured_us = [
  # a comment between items
  "matmul nt:bf16:bf16 1024x512x512 10 8",
  "matmul nt:bf16:bf16 4096x512x512 20 19",
  "rms_norm bf16 1024x512 3",
]
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

Machine made_up() {
  return Machine::parse(kMachineText, "made.toml").value();
}

OpKey product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {OpKind::kMatmul, "nt:bf16:bf16", {m, n, k}};
}

TEST(MachineFile, IsReadAndWritten) {
  const Machine machine = made_up();
  EXPECT_EQ(machine.name, "made up");
  EXPECT_EQ(machine.kind(), Device::kCuda);
  EXPECT_DOUBLE_EQ(machine.memory_bytes(), 80.0 * (1LL << 30));
  EXPECT_DOUBLE_EQ(machine.flops_per_second(DType::kBF16), 1e15);
  EXPECT_DOUBLE_EQ(machine.copy_bytes_per_second(false), 4e10);
  EXPECT_DOUBLE_EQ(machine.between.bytes_per_second(), 2.5e10);
  EXPECT_EQ(machine.ops.size(), 3u);
  EXPECT_DOUBLE_EQ(machine.ops.measured(product(1024, 512, 512))->warm, 8e-6);
  EXPECT_DOUBLE_EQ(machine.ops.measured({OpKind::kRmsNorm, "bf16", {1024, 512}})->warm, 3e-6);

  const std::string written = machine.to_toml();
  const auto again = Machine::parse(written, "again.toml");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again.value().to_toml(), written);
  EXPECT_EQ(again.value().ops.size(), 3u);
  EXPECT_EQ(again.value().collectives, machine.collectives);
  EXPECT_EQ(again.value().device.measured, machine.device.measured);
  EXPECT_DOUBLE_EQ(again.value().beside_ranks(OpClass::kMemory, 2), 1.5);
}

struct BadFile {
  const char *from, *to;
  std::vector<std::string> said;
};

TEST(MachineFile, BadOnesSayTheLineAndWhatWasExpected) {
  const std::vector<BadFile> bad = {
      {"memory_gb_per_s = 4000.0\n", "", {"made.toml:15", "device.memory_gb_per_s is missing"}},
      {"bf16_tflop_per_s = 1000.0\n", "", {"bf16_tflop_per_s is missing", "operations/s"}},
      {"gb_per_s = 300.0\n", "", {"inside.gb_per_s is missing"}},
      {"memory_gb_per_s = 4000.0",
       "memory_gb_per_s = -4000.0",
       {"made.toml:10", "expected between 0.1 and 100000"}},
      {"memory_gb_per_s = 4000.0",
       "memory_gb_per_s = 4.0e12",
       {"made.toml:10", "expected between"}},
      {"memory_gib = 80.0", "memory_gib = 85899345920", {"made.toml:6", "GiB"}},
      {"latency_us = 2.0",
       "latency_us = nan",
       {"made.toml:23", "expected a finite number, between"}},
      {"memory_gib = 80.0", "memory_gb = 80.0", {"made.toml:6", "did you mean device.memory_gib"}},
      {"memory_gib = 80.0", "memory_gib = \"80\"", {"made.toml:6", "is not a number"}},
      {"kind = \"cuda\"", "kind = \"gpu\"", {"made.toml:4", "expected one of cpu, cuda"}},
      {"sm = 90", "sm = 0", {"made.toml:5", "compute capability"}},
      {"\"copy_in_gb_per_s\"]", "\"copy_in\"]", {"made.toml:16", "has no key copy_in"}},
      {"matmul nt:bf16:bf16 4096x512x512 20 19",
       "matmul nt:bf16:bf16 4096x512 20 19",
       {"made.toml:41", "matmul has 3 of them"}},
      {"4096x512x512 20 19", "4096x512x0 20 19", {"made.toml:41", "positive integers"}},
      {"4096x512x512 20 19", "4096x512x512 -20 19", {"made.toml:41", "between 0.001 and 1e9"}},
      {"4096x512x512 20 19",
       "4096x512x512 2e-5s",
       {"made.toml:41", "not a number of microseconds"}},
      {"4096x512x512 20 19", "1024x512x512 20 19", {"made.toml:41", "occurs twice"}},
      {"rms_norm bf16", "rms_nrom bf16", {"made.toml:42", "did you mean rms_norm?"}},
      {"rms_norm bf16 1024x512 3", "all_reduce bf16 3 3", {"made.toml:42", "[collectives]"}},
      {"all_reduce inside 4 1000 10", "matmul inside 4 1000 10", {"made.toml:34", "neither a"}},
      {"all_reduce inside 4 1000 10",
       "all_reduce outside 4 1000 10",
       {"made.toml:34", "inside or"}},
      {"all_reduce inside 4 1000 10",
       "all_reduce inside 1 1000 10",
       {"made.toml:34", "at least 2"}},
      {"2 memory 1.5", "2 memori 1.5", {"made.toml:31", "expected one of product"}},
      {"2 memory 1.5", "2 memory 0.1", {"made.toml:31", "0.5 to 1000"}},
      {"[machine]", "stray = 1\n[machine]", {"made.toml:1", "outside a section"}},
  };
  for (const BadFile& file : bad) {
    const auto machine = Machine::parse(replaced(kMachineText, file.from, file.to), "made.toml");
    ASSERT_FALSE(machine.ok()) << file.to;
    for (const std::string& said : file.said)
      EXPECT_NE(machine.error().message.find(said), std::string::npos)
          << file.to << ": " << machine.error().message;
  }
}

// Rates that follow a power of each size are met exactly, wherever neighbours stand on both sides.
TEST(OpTimes, InterpolationIsExactForPowersOfTheSizes) {
  const auto seconds = [](double m, double n, double k) {
    return 1e-9 * std::pow(m, 0.9) * std::pow(n, 0.8) * k;
  };
  OpTable table;
  for (const std::int64_t m : {1024, 4096, 16384})
    for (const std::int64_t n : {512, 2048})
      table.add(product(m, n, 512), {seconds(static_cast<double>(m), static_cast<double>(n), 512),
                                     seconds(static_cast<double>(m), static_cast<double>(n), 512)});
  for (const std::int64_t m : {1500, 2048, 8000, 12000}) {
    const auto found = table.interpolated(product(m, 512, 512));
    ASSERT_TRUE(found.has_value());
    EXPECT_NEAR(found->cold / seconds(static_cast<double>(m), 512, 512), 1, 1e-9) << m;
  }
  // In two sizes at a time: exact at the centre of symmetry, near elsewhere.
  const auto centre = table.interpolated(product(2048, 1024, 512));
  ASSERT_TRUE(centre.has_value());
  EXPECT_NEAR(centre->cold / seconds(2048, 1024, 512), 1, 0.05);
  // A measured one is itself, and what it would be without itself is told from its neighbours.
  const OpKey middle = product(4096, 512, 512);
  EXPECT_EQ(table.interpolated(middle)->cold, table.measured(middle)->cold);
  EXPECT_NEAR(table.interpolated(middle, &middle)->cold / table.measured(middle)->cold, 1, 1e-9);
}

TEST(OpTimes, NothingIsTakenFromFarAway) {
  OpTable table;
  table.add(product(1024, 512, 512), {1e-5, 1e-5});
  EXPECT_FALSE(table.interpolated(product(1024, 512, 4096)).has_value());
  EXPECT_FALSE(table.interpolated(product(4096, 512, 512)).has_value());
  EXPECT_FALSE(table.interpolated({OpKind::kMatmul, "nn:bf16:bf16", {1024, 512, 512}}).has_value());
  // A little past the last one its rate is held.
  EXPECT_NEAR(table.interpolated(product(2048, 512, 512))->cold, 2e-5, 1e-12);
  // Two that are too far apart say nothing about what is between.
  table.add(product(1 << 20, 512, 512), {1e-2, 1e-2});
  EXPECT_FALSE(table.interpolated(product(32768, 512, 512)).has_value());
  // Near ones on one side only do not surround.
  table.add(product(2048, 1024, 512), {4e-5, 4e-5});
  EXPECT_FALSE(table.interpolated(product(3000, 1500, 700)).has_value());
}

TEST(OpTimes, EachSaysWhereItComesFrom) {
  Machine machine = made_up();
  Program program;
  const auto tensor = [&](Shape shape, std::int64_t offset) {
    const TensorId id = program.add_tensor({"t", shape, DType::kBF16, Storage::kActivation});
    program.tensor(id).offset = offset;
    return id;
  };
  const auto add_product = [&](std::int64_t m) {
    Op op;
    op.kind = OpKind::kMatmul;
    op.attrs = MatmulAttrs{false, true};
    op.inputs = {tensor({m, 512}, 0), tensor({512, 512}, 1 << 28)};
    op.outputs = {tensor({m, 512}, 1 << 29)};
    program.ops.push_back(op);
  };
  program.arena_bytes = 1 << 30;
  for (const std::int64_t m : {1024, 2048, 32768}) add_product(m);
  const OpTime exact = machine.seconds_of(program, program.ops[0]);
  EXPECT_EQ(exact.origin, Origin::kMeasured);
  EXPECT_DOUBLE_EQ(exact.seconds, 1e-5);
  const OpTime between = machine.seconds_of(program, program.ops[1]);
  EXPECT_EQ(between.origin, Origin::kInterpolated);
  // Rates 1024/10 and 4096/20 (in rows): the geometric mean half way.
  EXPECT_NEAR(between.seconds, 2048 / std::sqrt(102.4 * 204.8) * 1e-6, 1e-12);
  const OpTime far = machine.seconds_of(program, program.ops[2]);
  EXPECT_EQ(far.origin, Origin::kDataSheet);
  EXPECT_NEAR(far.seconds, 2.0 * 32768 * 512 * 512 / 1e15 / machine.efficiency.product + 2e-6,
              1e-9);

  // In a step the second of two equal ops finds its operands in the cache.
  program.ops = {program.ops[0], program.ops[0]};
  const auto times = machine.times_of(program);
  EXPECT_DOUBLE_EQ(times[0].seconds, 1e-5);
  EXPECT_LT(times[1].seconds, 8.5e-6);
  EXPECT_GE(times[1].seconds, 8e-6);
}

TEST(Machine, CollectivesAndSharing) {
  const Machine machine = made_up();
  const CollectiveKey key{OpKind::kAllReduce, false, 4};
  EXPECT_DOUBLE_EQ(machine.collective_seconds(key, 1000)->seconds, 1e-5);
  EXPECT_EQ(machine.collective_seconds(key, 1000)->origin, Origin::kMeasured);
  EXPECT_NEAR(machine.collective_seconds(key, 500500)->seconds, 6e-5, 1e-9);
  EXPECT_DOUBLE_EQ(machine.collective_seconds(key, 1)->seconds, 1e-5);
  EXPECT_NEAR(machine.collective_seconds(key, 10000000)->seconds, 110e-6 + 9e6 * 1e-4 / 999000,
              1e-8);
  EXPECT_FALSE(machine.collective_seconds(key, 100000000).has_value());
  EXPECT_FALSE(machine.collective_seconds({OpKind::kAllReduce, true, 4}, 1000).has_value());
  EXPECT_FALSE(machine.collective_seconds({OpKind::kAllReduce, false, 8}, 1000).has_value());

  EXPECT_DOUBLE_EQ(machine.beside_ranks(OpClass::kMemory, 1), 1);
  EXPECT_DOUBLE_EQ(machine.beside_ranks(OpClass::kMemory, 3), 2);
  EXPECT_DOUBLE_EQ(machine.beside_ranks(OpClass::kMemory, 16), 2.5);
  EXPECT_DOUBLE_EQ(machine.beside_ranks(OpClass::kProduct, 4), 1);
}

// Every op of a step has a key that can be written to a file and read back.
TEST(OpKeys, OfAWholeStepSurviveAFile) {
  for (const auto& [optimizer, moments] :
       {std::pair{"adamw", "fp32"}, {"adamw", "bf16"}, {"adamw", "8bit"}, {"adafactor", "fp32"}}) {
    RunConfig config;
    config.optimizer.moments = moments;
    config.batch.micro_batch = 2;
    config.batch.source = 32;
    config.batch.target = 16;
    config.train.precision = "bf16";
    config.optimizer.name = optimizer;
    config.optimizer.offload = 0.5;
    const auto options = step_options(config, 1);
    ASSERT_TRUE(options.ok()) << options.error().message;
    const Program program = compile_step(options.value());
    Machine machine = made_up();
    double seconds = 1e-6;
    for (const Op& op : program.ops) machine.ops.add(key_of(program, op), {seconds += 1e-7, 1e-6});
    const auto again = Machine::parse(machine.to_toml(), "again");
    ASSERT_TRUE(again.ok()) << again.error().message;
    for (const OpTime& time : again.value().times_of(program)) {
      EXPECT_EQ(time.origin, Origin::kMeasured);
      EXPECT_GT(time.seconds, 0);
    }
  }
}

}  // namespace
}  // namespace quintet
