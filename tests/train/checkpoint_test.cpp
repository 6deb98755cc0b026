// Checkpoints: written whole or not at all, whatever ends the writing; damage is found and passed
// over; old formats are read.
#include "train/checkpoint.h"

#include <fstream>
#include <future>
#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/philox.h"
#include "base/safetensors.h"
#include "tests/support/crashing_store.h"
#include "tests/support/faulty_store.h"
#include "tests/support/small_state.h"
#include "tests/support/temporary_folder.h"
#include "train/checkpoint_writer.h"
#include "train/trainer.h"

namespace quintet {
namespace {

const Path kOldRun = QUINTET_SOURCE_DIR "/tests/train/old_checkpoint";

RunConfig smallest_run(std::int64_t seed = 1) {
  RunConfig config;
  config.model.name = (kOldRun / "checkpoints/step-00000003/config.json").string();
  config.batch.micro_batch = 2;
  config.batch.source = 24;
  config.data.synthetic.languages = 1;
  config.data.synthetic.words = 20;
  config.train.threads = 1;
  config.train.seed = seed;
  config.schedule.warmup_steps = 2;
  config.output.log_every = 1000;
  return config;
}

std::string contents(const Path& path) {
  return read_file(path).value();
}

// The bytes of all tensors of a checkpoint.
std::string tensors_of(const Path& folder) {
  return contents(folder / "model.safetensors") + contents(folder / "optimizer.safetensors");
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : small_(smallest_run(), *world_) { small_.fill_moments(); }

  Result<std::unique_ptr<CheckpointWriter>> writer(const Path& folder, FileStore& files,
                                                   Retention retention = {}) {
    SaveOptions options;
    options.run_folder = folder;
    options.retention = retention;
    options.files = &files;
    options.threads = 1;
    return CheckpointWriter::create(small_.state, *small_.executor, *world_, options,
                                    {{"config.json", "{}"}, {"run.toml", "# none\n"}});
  }
  Status save(const Path& folder, std::int64_t step, FileStore& files = local_files(),
              Retention retention = {}) {
    QT_ASSIGN(const auto writing, writer(folder, files, retention));
    QT_TRY(writing->save({step, step * 10, {}}));
    return writing->finish();
  }
  // The step that a run in this folder would go on from.
  std::int64_t loaded_step(const Path& folder) {
    RunPosition position{-1, -1, {}};
    SmallState other(smallest_run(9), *world_);
    const auto loaded = load_newest(folder, *world_, other.state, position);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return position.step;
  }

  std::unique_ptr<World> world_ = make_single_world();
  SmallState small_;
};

TEST_F(CheckpointTest, HoldsWhatWasSaved) {
  const TemporaryFolder folder;
  ASSERT_TRUE(save(folder.path(), 7).ok());
  auto checkpoint = Checkpoint::open(checkpoint_at(folder.path(), 7));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint.value().position.samples, 70);
  EXPECT_TRUE(checkpoint.value().verify().ok());
  // Into a state of other values, and out again: the same bytes.
  SmallState other(smallest_run(9), *world_);
  ASSERT_TRUE(checkpoint.value().load_into(other.state).ok());
  const TemporaryFolder again;
  SaveOptions options;
  options.run_folder = again.path();
  options.background = false;  // through few blocks of memory, too
  const auto writing =
      CheckpointWriter::create(other.state, *other.executor, *world_, options, {}).value();
  ASSERT_TRUE(writing->save({7, 70, {}}).ok());
  EXPECT_FALSE(writing->busy());
  EXPECT_EQ(tensors_of(checkpoint_at(again.path(), 7).folder),
            tensors_of(checkpoint_at(folder.path(), 7).folder));
}

TEST_F(CheckpointTest, ManyFilesHoldTheSame) {
  const TemporaryFolder folder;
  SaveOptions options;
  options.run_folder = folder.path();
  options.file_bytes = 8000;
  const auto writing =
      CheckpointWriter::create(small_.state, *small_.executor, *world_, options, {}).value();
  ASSERT_TRUE(writing->save({3, 30, {}}).ok());
  ASSERT_TRUE(writing->finish().ok());
  const Path saved = checkpoint_at(folder.path(), 3).folder;
  EXPECT_FALSE(std::filesystem::exists(saved / "model.safetensors"));
  // As Hugging Face wants it: the index names the file of every tensor, and each is one of its own.
  const auto index = nlohmann::json::parse(contents(saved / "model.safetensors.index.json"));
  std::size_t found = 0;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    const auto opened = Safetensors::open(saved / file.get<std::string>());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_TRUE(opened.value().entries().contains(name));
    ++found;
  }
  EXPECT_EQ(found, small_.state.weights().size());
  auto checkpoint = Checkpoint::open(checkpoint_at(folder.path(), 3));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_GT(checkpoint.value().weights.files().size(), 3u);
  SmallState other(smallest_run(9), *world_);
  ASSERT_TRUE(checkpoint.value().load_into(other.state).ok());
  EXPECT_EQ(other.state.gather_weight("shared.weight"),
            small_.state.gather_weight("shared.weight"));
}

// The power fails at every single operation of a save, with what was not flushed lost: the run goes
// on from the old or from the new checkpoint, and whatever has the name of one is whole.
TEST_F(CheckpointTest, APowerCutAtAnyMomentLeavesTheOldOrTheNewOne) {
  const TemporaryFolder before;
  ASSERT_TRUE(save(before.path(), 1).ok());
  ASSERT_TRUE(save(before.path(), 2).ok());
  const std::string old_bytes = tensors_of(checkpoint_at(before.path(), 2).folder);
  SmallState changed(smallest_run(5), *world_);
  std::set<std::int64_t> steps;
  for (const auto names : {CrashingStore::Names::kKept, CrashingStore::Names::kLost}) {
    std::int64_t operations = 1;
    for (std::int64_t cut = 0; cut <= operations; ++cut) {
      const TemporaryFolder folder, trash;
      std::filesystem::copy(before.path(), folder.path(), std::filesystem::copy_options::recursive);
      CrashingStore store(cut == operations ? INT64_MAX : cut, trash.path());
      SaveOptions options;
      options.run_folder = folder.path();
      options.retention.newest = 1;
      options.files = &store;
      options.threads = 1;
      auto writing = CheckpointWriter::create(changed.state, *changed.executor, *world_, options,
                                              {{"config.json", "{}"}});
      if (writing.ok()) {
        Status saved = writing.value()->save({4, 40, {}});
        if (saved.ok()) saved = writing.value()->finish();
        // Removing the old ones is all that may fail without a word but a warning.
        if (!saved.ok()) {
          EXPECT_EQ(saved.error().code, ErrorCode::kIo);
        }
      }
      if (cut == 0) {  // how many there are is known from a run in which all went well
        CrashingStore all(INT64_MAX, trash.path());
        const TemporaryFolder whole;
        std::filesystem::copy(before.path(), whole.path(),
                              std::filesystem::copy_options::recursive);
        options.run_folder = whole.path();
        options.files = &all;
        const auto good = CheckpointWriter::create(changed.state, *changed.executor, *world_,
                                                   options, {{"config.json", "{}"}})
                              .value();
        ASSERT_TRUE(good->save({4, 40, {}}).ok());
        ASSERT_TRUE(good->finish().ok());
        operations = all.operations();
        EXPECT_GT(operations, 80);
      }
      if (cut < operations) store.lose_power(names);
      for (const CheckpointInfo& info : list_checkpoints(folder.path())) {
        auto checkpoint = Checkpoint::open(info);
        ASSERT_TRUE(checkpoint.ok()) << "cut " << cut << ": " << checkpoint.error().message;
        EXPECT_TRUE(checkpoint.value().verify().ok()) << "cut " << cut;
      }
      const std::int64_t step = loaded_step(folder.path());
      EXPECT_TRUE(step == 2 || step == 4) << "cut " << cut << " of " << operations;
      if (step == 2) {
        EXPECT_EQ(tensors_of(checkpoint_at(folder.path(), 2).folder), old_bytes) << "cut " << cut;
      }
      steps.insert(step);
      // The next run removes what this one left, and saves.
      CrashingStore next(INT64_MAX, trash.path());
      ASSERT_TRUE(save(folder.path(), 5, next).ok()) << "cut " << cut;
      for (const auto& entry :
           std::filesystem::directory_iterator(checkpoints_folder(folder.path())))
        EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
    }
  }
  EXPECT_EQ(steps, (std::set<std::int64_t>{2, 4}));
}

// A full disk at any moment: an error, the old checkpoint untouched, and saving works again once
// there is room.
TEST_F(CheckpointTest, AFullDiskAtAnyWriteLeavesTheOldOne) {
  const TemporaryFolder folder;
  ASSERT_TRUE(save(folder.path(), 1).ok());
  FaultyStore counted(INT64_MAX);
  ASSERT_TRUE(save(folder.path(), 2, counted).ok());
  for (std::int64_t failure = 0; failure < counted.operations(); failure += 7) {
    FaultyStore store(failure);
    const Status failed = save(folder.path(), 3, store);
    ASSERT_FALSE(failed.ok()) << failure;
    EXPECT_EQ(failed.error().code, ErrorCode::kIo);
    EXPECT_NE(failed.error().message.find("No space left"), std::string::npos);
    EXPECT_EQ(newest_checkpoint(folder.path())->step, 2) << failure;
  }
  ASSERT_TRUE(save(folder.path(), 3).ok());
  EXPECT_EQ(loaded_step(folder.path()), 3);
}

TEST_F(CheckpointTest, EveryDamageIsFoundAndPassedOver) {
  const TemporaryFolder folder;
  ASSERT_TRUE(save(folder.path(), 1).ok());
  ASSERT_TRUE(save(folder.path(), 2).ok());
  const Path newest = checkpoint_at(folder.path(), 2).folder;
  const Path aside = set_aside_path(folder.path(), "damaged", 2);
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(newest))
    files.push_back(entry.path());
  EXPECT_EQ(files.size(), 6u);
  PhiloxSequence random(3, 3);
  const auto expect_passed_over = [&](const std::string& what) {
    ASSERT_EQ(loaded_step(folder.path()), 1) << what;
    ASSERT_TRUE(std::filesystem::exists(aside)) << what;
    std::filesystem::rename(aside, newest);
  };
  for (const Path& file : files) {
    const std::string good = contents(file);
    std::vector<std::string> damaged;
    for (int i = 0; i < 12; ++i) {
      const std::size_t at = i == 0   ? 0
                             : i == 1 ? good.size() - 1
                                      : random.below(static_cast<std::uint32_t>(good.size()));
      damaged.push_back(good);
      damaged.back()[at] ^= static_cast<char>(1 << random.below(8));
    }
    damaged.push_back(good.substr(0, good.size() / 2));
    damaged.push_back(good + "x");
    damaged.emplace_back();
    for (std::size_t i = 0; i < damaged.size(); ++i) {
      std::ofstream(file, std::ios::binary) << damaged[i];
      expect_passed_over(fmt::format("{} {}", file.string(), i));
    }
    std::filesystem::remove(file);
    expect_passed_over(file.string() + " is not there");
    std::ofstream(file, std::ios::binary) << good;
  }
  EXPECT_EQ(loaded_step(folder.path()), 2);
  std::filesystem::create_directories(checkpoint_at(folder.path(), 3).folder);
  EXPECT_EQ(loaded_step(folder.path()), 2);  // an empty one
  // When none is whole, that is an error and not a new beginning.
  std::filesystem::remove(newest / "manifest.json");
  std::filesystem::remove(checkpoint_at(folder.path(), 1).folder / "model.safetensors");
  RunPosition position;
  const auto none = load_newest(folder.path(), *world_, small_.state, position);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kBadInput);
  EXPECT_NE(none.error().message.find("manifest.json"), std::string::npos) << none.error().message;
}

TEST_F(CheckpointTest, ValuesThatAreNoNumbersAreNotSaved) {
  const TemporaryFolder folder;
  ASSERT_TRUE(save(folder.path(), 1).ok());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    SmallState other(smallest_run(), *world_);
    const Shard& shard = other.program.shards.front();
    other.executor->write(shard.master, 40, std::as_bytes(std::span(&bad, 1)));
    SaveOptions options;
    options.run_folder = folder.path();
    options.retention.newest = 1;
    const auto writing =
        CheckpointWriter::create(other.state, *other.executor, *world_, options, {}).value();
    Status saved = writing->save({2, 20, {}});
    if (saved.ok()) saved = writing->finish();
    ASSERT_FALSE(saved.ok());
    EXPECT_EQ(saved.error().code, ErrorCode::kNonFinite);
    EXPECT_NE(saved.error().message.find("element 10 of"), std::string::npos)
        << saved.error().message;
  }
  EXPECT_EQ(loaded_step(folder.path()), 1);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u);
}

// Until writing is allowed to go on, nothing is written.
class GatedStore final : public FileStore {
 public:
  void open_gate() { gate_.set_value(); }
  Status append(const Path&, std::span<const std::byte>) override { return {}; }
  Status truncate(const Path&, std::uint64_t) override { return {}; }
  Status sync(const Path&) override { return {}; }
  Status remove(const Path&) override { return {}; }
  Status rename(const Path& from, const Path& to) override {
    return local_files().rename(from, to);
  }
  Status replace(const Path& path, std::string_view text) override {
    return local_files().replace(path, text);
  }
  Status create(const Path& path, std::int64_t size) override {
    return local_files().create(path, size);
  }
  Result<std::unique_ptr<PlacedFile>> open(const Path& path) override {
    opened_.wait();
    return local_files().open(path);
  }
  Status make_folder(const Path& path) override { return local_files().make_folder(path); }
  Status sync_folder(const Path& path) override { return local_files().sync_folder(path); }
  Status remove_folder(const Path& path) override { return local_files().remove_folder(path); }
  Result<std::int64_t> free_bytes(const Path&) override { return free; }

  std::int64_t free = INT64_MAX;

 private:
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
};

TEST_F(CheckpointTest, TrainingGoesOnWhileItIsWritten) {
  const TemporaryFolder folder, reference;
  ASSERT_TRUE(save(reference.path(), 2).ok());
  GatedStore store;
  const auto writing = writer(folder.path(), store).value();
  ASSERT_TRUE(writing->save({2, 20, {}}).ok());
  EXPECT_TRUE(writing->busy());
  ASSERT_TRUE(writing->poll().ok());
  EXPECT_TRUE(writing->busy());
  small_.state.initialise(77);  // what training does to weights
  store.open_gate();
  while (writing->busy()) ASSERT_TRUE(writing->poll().ok());
  EXPECT_EQ(tensors_of(checkpoint_at(folder.path(), 2).folder),
            tensors_of(checkpoint_at(reference.path(), 2).folder));
}

TEST_F(CheckpointTest, WithoutRoomNothingIsBegun) {
  const TemporaryFolder folder;
  GatedStore store;
  store.open_gate();
  store.free = 1000;
  const auto writing = writer(folder.path(), store).value();
  const Status refused = writing->save({2, 20, {}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_NE(refused.error().message.find("1000 B free"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(checkpoints_folder(folder.path())));
  store.free = INT64_MAX;
  ASSERT_TRUE(writing->save({3, 30, {}}).ok());
  ASSERT_TRUE(writing->finish().ok());
  EXPECT_EQ(loaded_step(folder.path()), 3);
}

// A run that cannot save trains to its end, says at once what failed, and ends with it.
TEST(Saving, AFailureIsHowTheRunEnds) {
  const TemporaryFolder folder;
  RunConfig config = smallest_run();
  config.output.folder = folder.path().string();
  config.output.save_every = 2;
  config.train.steps = 6;
  std::ofstream(folder.path() / "checkpoints") << "a file where a folder should be";
  const auto world = make_single_world();
  const auto result = train(config, *world);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kIo);
  EXPECT_NE(result.error().message.find("3 checkpoints of this run could not be written"),
            std::string::npos)
      << result.error().message;
  std::ifstream metrics(folder.path() / "metrics.jsonl");
  std::size_t lines = 0;
  for (std::string line; std::getline(metrics, line);) ++lines;
  EXPECT_EQ(lines, 6u);
  EXPECT_TRUE(list_checkpoints(folder.path()).empty());
}

// Written by version 0.1, before there were manifests; trained on by it to step 6.
TEST(Loading, OldCheckpointsGoOn) {
  const TemporaryFolder folder;
  std::filesystem::copy(kOldRun, folder.path(), std::filesystem::copy_options::recursive);
  RunConfig config = smallest_run();
  config.output.folder = folder.path().string();
  config.output.resume = true;
  config.output.resume_changed = true;  // the model's configuration was elsewhere then
  config.train.steps = 6;
  const auto world = make_single_world();
  const auto result = train(config, *world);
  ASSERT_TRUE(result.ok()) << result.error().message;
  const double expected[] = {5.5413289070129395, 5.312906265258789, 5.5940375328063965};
  std::ifstream metrics(folder.path() / "metrics.jsonl");
  std::string line;
  for (const double loss : expected) {
    ASSERT_TRUE(std::getline(metrics, line));
    EXPECT_NEAR(nlohmann::json::parse(line).at("loss").get<double>(), loss, 1e-5);
  }
  // Both are there, old and new.
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 2u);
  EXPECT_FALSE(Checkpoint::open(checkpoint_at(folder.path(), 3)).value().manifest.has_value());
  EXPECT_TRUE(Checkpoint::open(checkpoint_at(folder.path(), 6)).value().manifest.has_value());
}

TEST(Loading, NamesAllThatDoesNotFit) {
  const auto world = make_single_world();
  RunConfig config = smallest_run();
  SmallState fits(config, *world);
  const Path saved = kOldRun / "checkpoints/step-00000003";
  const auto files = TensorFiles::open(saved, "model").value();
  EXPECT_TRUE(fits.state.check(files).ok());
  config.model.name = "tiny";
  SmallState other(config, *world);
  const Status refused = other.state.check(files);
  ASSERT_FALSE(refused.ok());
  for (const char* part : {"\"shared.weight\" has shape [160, 16], the model needs [512, 64]",
                           "missing: tensor \"encoder.block.1", "and ", " more"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
}

TEST(Loading, ReadsTheBlocksAroundWhatIsWanted) {
  constexpr std::int64_t kBlock = 64;  // bytes
  auto files = TensorFiles::open(kOldRun / "checkpoints/step-00000003", "model").value();
  std::map<std::string, std::vector<std::uint64_t>> sums;
  for (const auto& [name, tensor] : files.tensors()) {
    std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
    ASSERT_TRUE(files.files()[tensor.file]
                    .read_at(tensor.offset, std::as_writable_bytes(std::span(bytes)))
                    .ok());
    for (std::size_t at = 0; at < bytes.size(); at += kBlock)
      sums[name].push_back(checksum(std::string_view(bytes).substr(at, kBlock)));
  }
  ASSERT_TRUE(files.check_blocks(kBlock, sums).ok());
  std::vector<float> some(20), all(160 * 16);
  ASSERT_TRUE(files.read("shared.weight", 1000, some).ok());
  EXPECT_EQ(files.bytes_read(), 2 * kBlock);
  ASSERT_TRUE(files.read("shared.weight", 0, all).ok());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 1000));
  // Only who reads the damaged block sees it.
  sums["shared.weight"][3] ^= 1;
  ASSERT_TRUE(files.check_blocks(kBlock, sums).ok());
  EXPECT_TRUE(files.read("shared.weight", 64, some).ok());
  const Status damaged = files.read("shared.weight", 50, some);
  ASSERT_FALSE(damaged.ok());
  EXPECT_NE(damaged.error().message.find("\"shared.weight\" is damaged"), std::string::npos)
      << damaged.error().message;
  sums["shared.weight"].pop_back();
  EXPECT_FALSE(files.check_blocks(kBlock, sums).ok());
}

TEST(Retention, KeepsTheNewestEveryNthAndTheBest) {
  const auto candidates = [](std::initializer_list<std::pair<int, double>> list) {
    std::vector<Candidate> all;
    for (const auto& [step, loss] : list)
      all.push_back({step, loss > 0 ? std::optional(loss) : std::nullopt});
    return all;
  };
  const auto all =
      candidates({{100, 3.0}, {200, 1.5}, {300, 2.5}, {400, 0}, {500, 1.5}, {600, 2.0}});
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(superfluous(all, {2, 0, 0}), (Steps{100, 200, 300, 400}));
  EXPECT_EQ(superfluous(all, {0, 0, 0}), Steps{});
  EXPECT_EQ(superfluous(all, {9, 0, 0}), Steps{});
  EXPECT_EQ(superfluous(all, {1, 200, 0}), (Steps{100, 300, 500}));
  EXPECT_EQ(superfluous(all, {1, 0, 1}), (Steps{100, 200, 300, 400}));  // of equals the newer
  EXPECT_EQ(superfluous(all, {1, 0, 2}), (Steps{100, 300, 400}));
  EXPECT_EQ(superfluous(all, {1, 300, 2}), (Steps{100, 400}));
}

TEST_F(CheckpointTest, RetentionReadsTheValidationLossOfEach) {
  const TemporaryFolder folder;
  const auto writing = writer(folder.path(), local_files(), {1, 0, 1}).value();
  const double losses[] = {3, 1, 2, 2.5};
  for (std::int64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(writing->save({step, step, losses[step - 1]}).ok());
    ASSERT_TRUE(writing->finish().ok());
  }
  const auto left = list_checkpoints(folder.path());
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].step, 2);
  EXPECT_EQ(position_of(left[0]).value().validation, 1.0);
  EXPECT_EQ(left[1].step, 4);
}

TEST(Manifest, AnyChangeIsRefused) {
  CheckpointManifest manifest;
  manifest.step = 5;
  manifest.ranks = 2;
  manifest.block_bytes = kBlockBytes;
  manifest.files["state.json"] = {10, 10, 77};
  manifest.tensors["w"] = {1, 2, 3};
  const std::string text = manifest.to_text();
  const auto parsed = CheckpointManifest::parse(text, "m");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed.value().tensors, manifest.tensors);
  EXPECT_EQ(parsed.value().to_text(), text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] ^= static_cast<char>(1 << bit);
      EXPECT_FALSE(CheckpointManifest::parse(damaged, "m").ok()) << at << " " << bit;
    }
    EXPECT_FALSE(CheckpointManifest::parse(text.substr(0, at), "m").ok()) << at;
  }
}

// Whatever the ranks hold, every element is written once, from one that has it, and nobody writes
// much more than its share.
TEST(Shares, CoverEverythingAndAreEven) {
  std::vector<Weight> weights(3);
  weights[0].name = "a";
  weights[0].shape = Shape{3000, 1000};  // three blocks
  weights[1].name = "b";
  weights[1].shape = Shape{1000};
  weights[2].name = "c";
  weights[2].shape = Shape{1500, 1000};
  const auto layout = checkpoint_layout(weights, stored_values("adamw", false));
  // Two tensor-parallel halves by columns, each in three flat parts; the vector is everywhere, and
  // rank 0's counts; the last weight is on two ranks alone.
  std::vector<std::vector<HeldPiece>> pieces(6);
  for (std::int64_t rank = 0; rank < 6; ++rank) {
    auto& mine = pieces[static_cast<std::size_t>(rank)];
    mine.push_back({0, 1, 0, 3000, rank % 2 * 500, 500, 1000, rank / 2 * 500000, 500000, 1});
    mine.push_back({1, 1, 0, 1, 0, 1000, 1000, 0, 1000, rank == 0 ? 1 : 0});
    if (rank >= 4) mine.push_back({2, 1, 0, 1500, 0, 1000, 1000, 0, 1500000, rank == 4 ? 1 : 0});
  }
  std::map<std::int64_t, std::int32_t> writer;
  std::int64_t most = 0;
  std::vector<std::vector<BlockShare>> shares;
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    shares.push_back(share_blocks(layout, pieces, rank));
    std::int64_t bytes = 0;
    for (const BlockShare& share : shares.back()) {
      if (share.writer != rank) continue;
      EXPECT_TRUE(writer.emplace(share.block, rank).second) << share.block;
      bytes += share.count * 4;
      std::vector<int> written(static_cast<std::size_t>(share.count), 0);
      for (const Contribution& part : share.parts) {
        const HeldPiece& piece =
            pieces[static_cast<std::size_t>(part.rank)][static_cast<std::size_t>(part.piece)];
        EXPECT_GE(part.at, piece.first);
        EXPECT_LE(part.at + part.count, piece.first + piece.count);
        for (std::int64_t i = 0; i < part.count; ++i)
          ++written.at(static_cast<std::size_t>(piece.element_at(part.at + i) - share.first));
      }
      EXPECT_EQ(std::count(written.begin(), written.end(), 1), share.count);
    }
    most = std::max(most, bytes);
  }
  EXPECT_EQ(static_cast<std::int64_t>(writer.size()), layout.blocks);
  EXPECT_LE(most, share_limit(layout, 6));
  // What one rank is to receive, another is to send.
  for (std::size_t rank = 0; rank < 6; ++rank) {
    for (const BlockShare& share : shares[rank]) {
      for (const Contribution& part : share.parts) {
        const auto& theirs = shares[static_cast<std::size_t>(part.rank)];
        EXPECT_TRUE(std::any_of(theirs.begin(), theirs.end(), [&](const BlockShare& s) {
          return s.block == share.block && s.writer == share.writer;
        }));
      }
    }
  }
}

}  // namespace
}  // namespace quintet
