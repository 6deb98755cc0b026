// Examples from a corpus. Sample i is a function of (corpus, configuration, seed, i): which
// language (language_schedule.h), which stretch of its tokens (a computed permutation of all
// stretches, anew in every epoch), which denoising. The state of a run is the number of its next
// sample.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "data/batch.h"
#include "data/corpus/corpus.h"
#include "data/loader/language_schedule.h"
#include "data/loader/objective.h"

namespace quintet {

struct CorpusConfig {
  std::string folder;  // of a corpus made by `quintet data build`
  std::string split = "train";
  std::vector<std::string> only;  // languages; empty: all
  double alpha = 0.3;
  bool pack = false;
  std::vector<std::string> mode_tokens;
  ObjectiveConfig objective;

  // Adds its fields to the section at hand.
  void list(FieldList& fields);
};

class CorpusSource final : public BatchSource {
 public:
  // Opens the corpus and fits the objective into the lengths; `target_length` 0: as long as the
  // objective makes it. Reads the manifest, and no shard: takes milliseconds, whatever the size.
  // Refused: a corpus whose ids the model has no rows for, a language with too little text for one
  // example, an objective that does not fit.
  static Result<CorpusSource> open(const CorpusConfig& config, std::int64_t source_length,
                                   std::int64_t target_length, std::int64_t model_vocabulary,
                                   std::uint64_t seed);

  // Safe to call from many threads at a time. Rows beyond an example's end are padded: labels with
  // -1, and `lengths` is set unless every source is full.
  Status fill(std::int64_t first, Batch& batch) override;

  const Corpus& corpus() const { return *corpus_; }
  const Objective& objective() const { return objective_; }
  // Whether examples are always as long as the batch's sources, so that no lengths are needed.
  bool always_full() const;

  // A sample, taken apart; for people and tests.
  struct Stretch {
    std::string language;
    std::uint64_t epoch = 0, begin = 0;  // of the language; first token of the stretch in it
    std::int64_t tokens = 0;
  };
  Stretch stretch_of(std::int64_t sample) const;
  // The languages sampled: name, stretches in an epoch, share of the samples.
  struct Language {
    std::string name;
    std::uint64_t stretches = 0;
    double share = 0;
  };
  std::vector<Language> languages() const;

 private:
  struct Stream {
    std::string name;
    const TokenStream* tokens;
    std::uint64_t stretches;  // whole ones in an epoch
  };
  // One row of a batch.
  struct Row {
    std::span<std::int32_t> source, labels;
    std::span<std::int32_t> source_segments, source_positions, target_segments, target_positions;
    std::int32_t source_used = 0;
  };
  // A stretch, found.
  struct Place {
    std::size_t stream = 0;
    std::uint64_t epoch = 0, begin = 0;
  };
  CorpusSource() = default;
  Place place_of(std::uint64_t sample) const;
  Status fill_full(std::uint64_t sample, std::vector<std::int32_t>& tokens, Row& row) const;
  Status fill_packed(std::uint64_t sample, std::vector<std::int32_t>& tokens,
                     std::vector<std::uint64_t>& ends, Row& row) const;

  std::unique_ptr<Corpus> corpus_;
  std::vector<Stream> streams_;
  Objective objective_;
  std::unique_ptr<LanguageSchedule> schedule_;
  std::uint64_t seed_ = 0;
  std::int64_t source_length_ = 0;
  bool pack_ = false;
};

}  // namespace quintet
