// Measuring a machine: what comes out is complete, can be gone on with, and is read back.
#include "lab/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/files.h"
#include "lab/op_timing.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"
#include "train/run_config.h"

namespace quintet {
namespace {

CalibrateOptions tiny_options(const std::string& out) {
  CalibrateOptions options;
  options.out = out;
  options.name = "here";
  options.models = {"tiny"};
  options.micro_batches = {2};
  options.optimizers = {"adamw", "adamw+8bit"};
  options.source = 32;
  options.target = 16;
  options.precision = "fp32";
  options.grid = false;
  return options;
}

Program tiny_program(const char* moments) {
  RunConfig config;
  config.optimizer.moments = moments;
  config.batch.micro_batch = 2;
  config.batch.source = 32;
  config.batch.target = 16;
  config.train.threads = 1;
  return compile_step(step_options(config, 1).value());
}

TEST(Calibrate, MeasuresEveryOpOfAStepAndGoesOnWhereItStopped) {
  const TemporaryFolder folder;
  CalibrateOptions options = tiny_options((folder.path() / "here.toml").string());
  options.limit = 1e-9;  // stops before the first op
  ASSERT_TRUE(calibrate_ops(options).ok());
  const auto begun = Machine::load(options.out);
  ASSERT_TRUE(begun.ok()) << begun.error().message;
  EXPECT_EQ(begun.value().ops.size(), 0u);
  EXPECT_GT(begun.value().memory_bytes_per_second(), 1e8);
  EXPECT_GT(begun.value().flops_per_second(DType::kF32), 1e8);
  // The last cache, as sums over 1 to 256 MiB felt it.
  EXPECT_GE(begun.value().device.cache_mib, 2);
  EXPECT_LE(begun.value().device.cache_mib, 512);

  options.limit = 0;
  ASSERT_TRUE(calibrate_ops(options).ok());
  const auto machine = Machine::load(options.out);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  // What the first run measured was kept.
  EXPECT_EQ(machine.value().device.memory_gb_per_s, begun.value().device.memory_gb_per_s);
  for (const char* moments : {"fp32", "8bit"}) {
    Provenance rests_on;
    for (const OpTime& time : machine.value().times_of(tiny_program(moments))) {
      EXPECT_GT(time.seconds, 0);
      rests_on.add(time);
    }
    EXPECT_DOUBLE_EQ(rests_on.share(Origin::kMeasured), 1) << moments;
  }

  // Nothing is left to measure: the file stays as it is.
  const std::string before = read_file(options.out).value();
  ASSERT_TRUE(calibrate_ops(options).ok());
  EXPECT_EQ(read_file(options.out).value(), before);

  // Another device's file is not added to.
  options.device.threads = 2;
  const Status other = calibrate_ops(options);
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another device"), std::string::npos);
}

TEST(Calibrate, KnowsItsOptimizers) {
  const TemporaryFolder folder;
  CalibrateOptions options = tiny_options((folder.path() / "x.toml").string());
  for (const char* optimizer : {"sgd", "adamw+4bit", "adamw+8bit+", "adafactor+bf16"}) {
    options.optimizers = {optimizer};
    const Status status = calibrate_ops(options);
    ASSERT_FALSE(status.ok()) << optimizer;
    EXPECT_EQ(status.error().code, ErrorCode::kUsage) << optimizer;
  }
}

TEST(Calibrate, LinksNeedSeveralRanksAndAFileWithOps) {
  const TemporaryFolder folder;
  const auto world = make_single_world();
  const Status alone = calibrate_links(tiny_options((folder.path() / "x.toml").string()), *world);
  ASSERT_FALSE(alone.ok());
  EXPECT_NE(alone.error().message.find("quintet launch"), std::string::npos);
}

TEST(Calibrate, LinksOfTwoRanksEnterTheFile) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "here.toml").string();
  CalibrateOptions options = tiny_options(out);
  options.limit = 1e-9;
  ASSERT_TRUE(calibrate_ops(options).ok());
  const auto run = testing::quintet(
      " launch -n 2 --threads 1 -- calibrate --links --precision "
      "fp32 --threads 1 --out " +
      out);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const auto machine = Machine::load(out);
  ASSERT_TRUE(machine.ok()) << machine.error().message;
  for (const OpKind kind :
       {OpKind::kSend, OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter}) {
    const auto small = machine.value().collective_seconds({kind, false, 2}, 256);
    const auto large = machine.value().collective_seconds({kind, false, 2}, 1 << 25);
    ASSERT_TRUE(small.has_value() && large.has_value()) << name_of(kind);
    EXPECT_EQ(small->origin, Origin::kMeasured);
    EXPECT_GT(large->seconds, small->seconds) << name_of(kind);
  }
  EXPECT_GT(machine.value().inside.gb_per_s, 0.01);
  EXPECT_EQ(machine.value().node.devices, 2);
  EXPECT_GE(machine.value().beside_ranks(OpClass::kMemory, 2), 0.5);
}

// The files that are shipped can be read. Where ops were measured, a product left out is told from
// its neighbours.
TEST(ShippedMachines, AreSoundAndInterpolateTheirOwnProducts) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(QUINTET_SOURCE_DIR "/machines")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    const auto loaded = Machine::load(entry.path().string());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const Machine& machine = loaded.value();
    std::vector<double> errors;
    machine.ops.for_each([&](const OpKey& key, const OpSeconds& seconds) {
      if (key.kind != OpKind::kMatmul) return;
      if (const auto told = machine.ops.interpolated(key, &key))
        errors.push_back(std::abs(told->cold / seconds.cold - 1));
    });
    if (errors.size() < 20) continue;
    std::sort(errors.begin(), errors.end());
    EXPECT_LT(errors[errors.size() / 2], 0.15) << entry.path();
    ::testing::Test::RecordProperty(entry.path().stem().string() + "_median_error",
                                    std::to_string(errors[errors.size() / 2]));
  }
  EXPECT_GE(files, 2);
}

}  // namespace
}  // namespace quintet
