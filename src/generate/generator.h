// Generates text with a model: reads sources, then adds word after word until each has come to its
// end. All of its memory is planned and allocated when it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "generate/beam_search.h"
#include "generate/next_words.h"
#include "model/t5_config.h"
#include "model/t5_generation.h"
#include "parallel/communicator.h"
#include "runtime/executor.h"

namespace quintet {

struct GenerateOptions {
  GenerationShape shape;  // candidates: as many as may be drawn from; beams want twice their number
  DType dtype = DType::kF32;
  Target target;
};

class Generator {
 public:
  // `folder` has a config.json and weights, as checkpoints and Hugging Face's models have.
  static Result<Generator> open(const Path& folder, const GenerateOptions& options);

  const T5Config& model() const { return *model_; }
  // What it has allocated on its device, as planned.
  std::int64_t planned_bytes() const { return encode_->arena_bytes + decode_->arena_bytes; }

  // At most `sequences` sources of at most `source` ids each. With one beam words are chosen as
  // `choice` says, `first_row` being the number of the first source among all; with more the best
  // result of each search is taken.
  Result<std::vector<Generated>> generate(std::span<const std::vector<std::int32_t>> sources,
                                          const Choice& choice, double length_penalty = 1,
                                          std::int64_t first_row = 0);
  // Runs of the decoder so far.
  std::int64_t steps() const { return steps_; }

 private:
  Generator() = default;
  Status read_sources(std::span<const std::vector<std::int32_t>> sources);
  Result<std::vector<Generated>> one_by_one(std::int64_t count, const Choice& choice,
                                            std::int64_t first_row);
  Result<std::vector<Generated>> with_beams(std::int64_t count, double length_penalty);
  // The best next words of every row, after `words` at `position`.
  struct Candidates {
    std::vector<std::int32_t> words;
    std::vector<float> log_probabilities;
  };
  Result<Candidates> advance(std::span<const std::int32_t> words, std::int64_t position);

  GenerateOptions options_;
  std::unique_ptr<T5Config> model_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Program> encode_, decode_;
  std::unique_ptr<Executor> encoder_, decoder_;
  TensorId position_ = kNone, rows_ = kNone, words_ = kNone, log_probabilities_ = kNone;
  std::int64_t steps_ = 0;
};

}  // namespace quintet
