// A corpus made from nothing, with structure worth learning and a best possible loss that is known:
// several languages, each with words of its own and a Markov chain over them, denoised like real
// text. Because the chains are known, so is the probability of every target given its source, and
// its mean is the loss that no model can beat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "data/batch.h"
#include "data/span_corruption.h"

namespace quintet {

struct SyntheticConfig {
  std::int64_t languages = 4;
  std::int64_t words = 32;     // of each language
  std::int64_t branching = 4;  // words that can follow a word
  double skew = 0.5;           // the k-th likeliest successor has weight skew^k
};

class SyntheticCorpus final : public BatchSource {
 public:
  // Fails when the vocabulary has no room for the words and 100 sentinels, or the lengths do not
  // fit.
  static Result<SyntheticCorpus> create(const SyntheticConfig& config,
                                        const SpanCorruptionConfig& spans, std::int64_t vocab_size,
                                        std::int64_t source_length, std::int64_t target_length,
                                        std::uint64_t seed);

  Status fill(std::int64_t first, Batch& batch) override;
  std::vector<std::string> group_names() const override;
  std::size_t group_of(std::int64_t sample) const override;

  // The mean over `examples` examples of -log p(target | source), per label: the loss of a model
  // that knows the corpus perfectly. Examples are those of another seed than the training data's.
  double optimal_loss(std::int64_t examples) const;

  const SpanCounts& counts() const { return counts_; }

 private:
  struct Language {
    std::vector<double> transition;  // [words, words], rows sum to 1
    std::vector<double> stationary;  // [words]
    // [length][from * words + to]: probability of being at `to` after `length` steps
    std::vector<std::vector<double>> powers;
  };
  struct Example {
    std::size_t language = 0;
    std::vector<std::int32_t> tokens, source, labels;
  };

  void make_example(std::uint64_t seed, std::int64_t index, Example& example) const;
  double negative_log_likelihood(const Example& example) const;
  Language make_language(std::size_t index) const;
  std::int32_t word_id(std::size_t language, std::int64_t word) const {
    return static_cast<std::int32_t>(3 + static_cast<std::int64_t>(language) * config_.words +
                                     word);
  }

  SyntheticConfig config_;
  SpanCounts counts_;
  SpecialIds ids_;
  std::uint64_t seed_ = 0;
  std::vector<Language> languages_;
};

}  // namespace quintet
