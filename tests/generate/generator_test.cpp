// Generation against training: what the decoder says word by word, from its cache, is what the
// training program says of the whole sequence at once; and against the reference's own words.
#include "generate/generator.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "base/tensor_files.h"
#include "data/batch.h"
#include "train/feed.h"
#include "train/model_state.h"
#include "train/step_program.h"

namespace quintet {
namespace {

#ifdef QUINTET_TEST_CUDA
constexpr Device kDevice = Device::kCuda;
#else
constexpr Device kDevice = Device::kCpu;
#endif

Path golden_folder(const std::string& name) {
  return Path(QUINTET_SOURCE_DIR) / "tests/goldens" / name;
}

std::vector<std::vector<std::int32_t>> sources_of(const std::string& name, std::size_t count) {
  const Json batches =
      parse_json(read_file(golden_folder(name) / "batches.json").value(), name).value();
  std::vector<std::vector<std::int32_t>> sources;
  const Json &ids = batches[0]["input_ids"], &mask = batches[0]["attention_mask"];
  for (std::size_t i = 0; i < std::min(count, ids.size()); ++i) {
    auto& source = sources.emplace_back();
    for (std::size_t j = 0; j < ids[i].size(); ++j)
      if (mask[i][j].get<int>() != 0) source.push_back(ids[i][j].get<std::int32_t>());
  }
  return sources;
}

GenerateOptions options_for(const std::vector<std::vector<std::int32_t>>& sources,
                            std::int64_t tokens, std::int64_t beams) {
  GenerateOptions options;
  options.shape = {std::ssize(sources), beams, 0, tokens,
                   static_cast<std::int32_t>(beams > 1 ? 2 * beams : 1)};
  for (const auto& source : sources)
    options.shape.source = std::max(options.shape.source, std::ssize(source));
  options.target.device = kDevice;
  return options;
}

// -log P(words) of one source by the training program.
double loss_of(const std::string& name, const std::vector<std::int32_t>& source,
               std::vector<std::int32_t> words, bool ended) {
  StepOptions step;
  step.model = load_model_config(golden_folder(name).string()).value();
  if (ended) words.push_back(static_cast<std::int32_t>(step.model.eos_id));
  step.batch = {1, std::ssize(source), std::ssize(words), true, false};
  step.update = false;
  step.target.device = kDevice;
  const auto world = make_single_world();
  step.grid = Grid(1, 1, 1, "tp-dp-pp");
  const Program program = compile_step(step);
  const auto executor = make_executor(program, *world).value();
  auto weights = TensorFiles::open(golden_folder(name), "model").value();
  EXPECT_TRUE(ModelState(*executor, *world, step.model).load(weights).ok());
  Batch batch;
  batch.sequences = 1;
  batch.source_length = std::ssize(source);
  batch.target_length = std::ssize(words);
  batch.source = source;
  batch.labels = words;
  batch.target = {static_cast<std::int32_t>(step.model.decoder_start_id)};
  batch.target.insert(batch.target.end(), words.begin(), words.end() - 1);
  batch.lengths = {static_cast<std::int32_t>(source.size())};
  EXPECT_TRUE(feed(*executor, 0, batch, step).ok());
  return run_step(*executor, 1, 0).value().loss * static_cast<double>(words.size());
}

TEST(Generator, WordByWordIsWhatTrainingSaysOfTheWhole) {
  for (const std::string name : {"tiny", "heads64"}) {
    const auto sources = sources_of(name, 3);
    for (const std::int64_t beams : {1, 3}) {
      auto generator =
          Generator::open(golden_folder(name), options_for(sources, 12, beams)).value();
      const auto results = generator.generate(sources, {}).value();
      ASSERT_EQ(results.size(), sources.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        const double expected =
            loss_of(name, sources[i], results[i].words, results[i].words.size() < 12);
        EXPECT_NEAR(-results[i].log_probability, expected, 1e-4 * expected) << name << " " << i;
      }
    }
  }
}

TEST(Generator, ABatchGivesWhatItsRowsGiveAlone) {
  const auto sources = sources_of("tiny", 3);
  auto together = Generator::open(golden_folder("tiny"), options_for(sources, 10, 1)).value();
  const auto results = together.generate(sources, {}).value();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::vector<std::vector<std::int32_t>> one = {sources[i]};
    auto alone = Generator::open(golden_folder("tiny"), options_for(one, 10, 1)).value();
    EXPECT_EQ(alone.generate(one, {}).value()[0].words, results[i].words) << i;
  }
}

TEST(Generator, GreedyWordsAreTheReferences) {
  for (const std::string name : {"tiny", "grid", "long"}) {
    const Path file = golden_folder(name) / "generated.json";
    const Json expected = parse_json(read_file(file).value(), file.string()).value();
    const auto sources = sources_of(name, expected.size());
    const std::int64_t tokens = 20;
    auto generator = Generator::open(golden_folder(name), options_for(sources, tokens, 1)).value();
    const auto results = generator.generate(sources, {}).value();
    for (std::size_t i = 0; i < sources.size(); ++i)
      EXPECT_EQ(results[i].words, expected[i].get<std::vector<std::int32_t>>()) << name << " " << i;
  }
}

TEST(Generator, RefusesWhatItCannotRead) {
  const auto sources = sources_of("tiny", 1);
  auto generator = Generator::open(golden_folder("tiny"), options_for(sources, 4, 1)).value();
  const std::vector<std::vector<std::int32_t>> outside = {{100000}};
  EXPECT_NE(generator.generate(outside, {}).error().message.find("100000"), std::string::npos);
  const std::vector<std::vector<std::int32_t>> empty = {{}};
  EXPECT_FALSE(generator.generate(empty, {}).ok());
  EXPECT_FALSE(Generator::open("/nowhere", options_for(sources, 4, 1)).ok());
}

}  // namespace
}  // namespace quintet
