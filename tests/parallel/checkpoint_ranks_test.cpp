// Checkpoints under layouts of several ranks: what one layout writes is byte for byte what a rank
// alone writes, and what goes wrong on one rank all ranks hear of.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/parallel/world.h"
#include "tests/support/faulty_store.h"
#include "tests/support/small_state.h"
#include "tests/support/temporary_folder.h"
#include "train/checkpoint_writer.h"
#include "train/shared_status.h"

namespace quintet {
namespace {

using testing::test_world;

struct Ranks {
  const char* name;
  int tp, pp, zero;
  const char* optimizer = "adamw";
  const char* precision = "fp32";
  const char* master = "fp32";
  bool background = true;
  const char* moments = "fp32";
};

RunConfig run_of(const Ranks& ranks, const Path& model, std::int64_t seed) {
  RunConfig config;
  config.model.name = model.string();
  config.batch.micro_batch = 2;
  config.batch.source = 16;
  config.batch.accumulate = 2;
  config.parallel.tp = ranks.tp;
  config.parallel.pp = ranks.pp;
  config.parallel.zero = ranks.zero;
  config.parallel.whole_below = 0;
  config.optimizer.name = ranks.optimizer;
  config.optimizer.master = ranks.master;
  config.optimizer.moments = ranks.moments;
  config.train.precision = ranks.precision;
  config.train.threads = 1;
  config.train.seed = seed;
  return config;
}

// A folder that all ranks see, with a model whose embedding takes several blocks.
class RanksTest : public ::testing::TestWithParam<Ranks> {
 protected:
  RanksTest() : folder_(test_world().broadcast(own_.path().string())) {
    if (test_world().rank() == 0) {
      std::ofstream(folder_ / "config.json")
          << R"({"model_type":"mt5","vocab_size":70001,"d_model":16,"d_kv":4,"d_ff":24,)"
          << R"("num_heads":4,"num_layers":2,"num_decoder_layers":2,)"
          << R"("relative_attention_num_buckets":8,"relative_attention_max_distance":16,)"
          << R"("feed_forward_proj":"gated-gelu","tie_word_embeddings":false})";
    }
    test_world().barrier();
  }
  ~RanksTest() override { test_world().barrier(); }

  static std::unique_ptr<CheckpointWriter> writer(SmallState& small, World& world,
                                                  const Path& folder, bool background,
                                                  FileStore& files = local_files()) {
    SaveOptions options;
    options.run_folder = folder;
    options.background = background;
    options.files = &files;
    return CheckpointWriter::create(small.state, *small.executor, world, options,
                                    {{"config.json", "{}"}})
        .value();
  }
  // What a rank alone saves.
  void save_alone(const Ranks& ranks, std::int64_t step) {
    if (test_world().rank() == 0) {
      Ranks alone = ranks;
      alone.tp = alone.pp = 1;
      alone.zero = 0;
      const auto world = make_single_world();
      SmallState small(run_of(alone, folder_ / "config.json", 1), *world);
      small.fill_moments();
      const auto writing = writer(small, *world, folder_ / "alone", true);
      ASSERT_TRUE(writing->save({step, 10 * step, {}}).ok());
      ASSERT_TRUE(writing->finish().ok());
    }
    test_world().barrier();
  }

  const TemporaryFolder own_;
  const Path folder_;
};

TEST_P(RanksTest, WriteWhatARankAloneWrites) {
  const Ranks& ranks = GetParam();
  World& world = test_world();
  if (world.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  save_alone(ranks, 3);
  // Other values at first; then those of the file.
  SmallState small(run_of(ranks, folder_ / "config.json", 99), world);
  auto checkpoint = Checkpoint::open(checkpoint_at(folder_ / "alone", 3));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  ASSERT_TRUE(checkpoint.value().load_into(small.state).ok());
  const auto writing = writer(small, world, folder_ / "ranks", ranks.background);
  // No rank has more than its share.
  const auto layout = checkpoint_layout(small.state.weights(), small.state.values());
  EXPECT_LE(writing->bytes(), saving_bytes(layout, world.size(), ranks.background));
  for (std::int64_t step = 3; step <= 4; ++step) {
    ASSERT_TRUE(writing->save({step, 10 * step, {}}).ok());
    const Status saved = writing->finish();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  }
  if (world.rank() != 0) return;
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(read_file(checkpoint_at(folder_ / "ranks", 3).folder / file).value(),
              read_file(checkpoint_at(folder_ / "alone", 3).folder / file).value())
        << ranks.name << " " << file;
  }
  EXPECT_TRUE(Checkpoint::open(checkpoint_at(folder_ / "ranks", 4)).value().verify().ok());
}

INSTANTIATE_TEST_SUITE_P(
    All, RanksTest,
    ::testing::Values(
        Ranks{"zero 0", 1, 1, 0}, Ranks{"zero 3", 1, 1, 3},
        Ranks{"tp 4, waiting", 4, 1, 0, "adamw", "fp32", "fp32", false},
        Ranks{"tp 2 zero 1", 2, 1, 1}, Ranks{"pp 2 zero 3", 1, 2, 3},
        Ranks{"tp 2 pp 2, remainders", 2, 2, 0, "adamw", "bf16", "remainder"},
        Ranks{"zero 2 adafactor", 1, 1, 2, "adafactor", "bf16", "fp32"},
        Ranks{"tp 2 adafactor", 2, 1, 3, "adafactor"},
        Ranks{"zero 3 moments in bf16", 1, 1, 3, "adamw", "fp32", "fp32", true, "bf16"},
        Ranks{"zero 1 moments in 8 bits", 1, 1, 1, "adamw", "fp32", "fp32", true, "8bit"},
        Ranks{"tp 2 pp 2 moments in 8 bits", 2, 2, 0, "adamw", "bf16", "remainder", true, "8bit"},
        Ranks{"tp 2 zero 3 moments in 8 bits", 2, 1, 3, "adamw", "fp32", "fp32", true, "8bit"}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
      return name;
    });

using OneRankTest = RanksTest;

TEST_P(OneRankTest, AWriteThatFailsOnOneRankFailsOnAll) {
  World& world = test_world();
  if (world.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  SmallState small(run_of(GetParam(), folder_ / "config.json", 1), world);
  {
    const auto writing = writer(small, world, folder_ / "run", true);
    ASSERT_TRUE(writing->save({1, 10, {}}).ok());
    ASSERT_TRUE(writing->finish().ok());
  }
  for (std::int64_t failure = 0; failure < 6; ++failure) {
    FaultyStore store(world.rank() == 2 ? failure : INT64_MAX);
    const auto writing = writer(small, world, folder_ / "run", true, store);
    Status saved = writing->save({2, 20, {}});
    while (saved.ok() && writing->busy()) saved = writing->poll();
    if (saved.ok()) {
      EXPECT_EQ(failure, 5) << "nothing failed";  // rank 2 has few operations to do
      break;
    }
    EXPECT_EQ(saved.error().code, ErrorCode::kIo) << saved.error().message;
    EXPECT_NE(saved.error().message.find("No space left"), std::string::npos);
    EXPECT_FALSE(writing->busy());
    world.barrier();
    if (world.rank() == 0) {
      EXPECT_EQ(newest_checkpoint(folder_ / "run")->step, 1);
    }
    world.barrier();
  }
  RunPosition position;
  ASSERT_TRUE(load_newest(folder_ / "run", world, small.state, position).ok());
}

TEST_P(OneRankTest, DamageThatOneRankSeesIsPassedOverByAll) {
  World& world = test_world();
  if (world.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  SmallState small(run_of(GetParam(), folder_ / "config.json", 1), world);
  const auto writing = writer(small, world, folder_ / "run", true);
  for (std::int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(writing->save({step, 10 * step, {}}).ok());
    ASSERT_TRUE(writing->finish().ok());
  }
  if (world.rank() == 0) {
    // One bit near the end: of the last tensor, which few ranks have a part of.
    const Path file = checkpoint_at(folder_ / "run", 2).folder / "model.safetensors";
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-5, std::ios::end);
    const auto value = static_cast<char>(bytes.get() ^ 4);
    bytes.seekp(-5, std::ios::end);
    bytes.put(value);
  }
  world.barrier();
  RunPosition position;
  const auto loaded = load_newest(folder_ / "run", world, small.state, position);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(position.step, 1);
  EXPECT_EQ(position.samples, 10);
}

INSTANTIATE_TEST_SUITE_P(Zero3, OneRankTest, ::testing::Values(Ranks{"zero 3", 1, 1, 3}));

// Messages longer than a 32-bit count of bytes are only cut: the same code carries short ones.
TEST(Worlds, GatherAndBroadcastAnyLength) {
  World& world = test_world();
  const std::string mine(static_cast<std::size_t>(world.rank() * 100000 + 3),
                         static_cast<char>('a' + world.rank()));
  const auto all = world.gather(world.rank() == 1 ? std::string() : mine);
  if (world.rank() == 0) {
    ASSERT_EQ(all.size(), static_cast<std::size_t>(world.size()));
    EXPECT_EQ(all[0], mine);
    for (std::size_t r = 1; r < all.size(); ++r)
      EXPECT_EQ(all[r].size(), r == 1 ? 0U : r * 100000 + 3);
  } else {
    EXPECT_TRUE(all.empty());
  }
  EXPECT_EQ(world.broadcast(world.rank() == 0 ? "text" : "other and longer"), "text");
}

TEST(Worlds, AgreeOnTheFirstFailure) {
  World& world = test_world();
  if (world.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  EXPECT_TRUE(agree(world, {}).ok());
  const Status status =
      agree(world, world.rank() >= 2 ? Status(io_error("disk of {}", world.rank())) : Status());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(status.error().message, "disk of 2");
}

}  // namespace
}  // namespace quintet
