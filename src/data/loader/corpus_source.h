// Examples from one corpus, or from several mixed. Sample i is a function of (corpora,
// configuration, seed, i): which language of which corpus (mixture.h), which part of its text (a
// computed permutation, anew in every epoch: stretches.h, or packed_stream.h), which denoising. The
// state of a run is the number of its next sample.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "data/batch.h"
#include "data/corpus/corpus.h"
#include "data/loader/mixture.h"
#include "data/loader/objective.h"
#include "data/loader/packed_stream.h"
#include "data/loader/stretches.h"

namespace quintet {

struct CorpusConfig {
  std::string folder;                // of a corpus made by `quintet data build`
  std::vector<std::string> mixture;  // or several of them (MixtureEntry)
  std::string split = "train";
  std::vector<std::string> only, exclude;  // languages; none: all, and none
  std::vector<std::string> weights;        // of languages: "de=2"
  double alpha = 0.3;
  bool pack = false;
  std::int64_t sentinels = 0;  // 0: the corpus's
  std::vector<std::string> mode_tokens;
  ObjectiveConfig objective;

  // Of all corpora that it names: one, or the mixture's, whose entries may have mistakes.
  Result<std::vector<std::string>> folders() const;
  // Adds its fields to the section at hand.
  void list(FieldList& fields);
};

class CorpusSource final : public BatchSource {
 public:
  // Opens the corpora and fits the objective into the lengths; `target_length` 0: as long as the
  // objective makes it. Reads the manifests and, unless rows are packed, no shard: takes
  // milliseconds, whatever the size. Refused: corpora whose ids the model has no rows for or that
  // have different tokenizers, an objective that does not fit.
  static Result<CorpusSource> open(const CorpusConfig& config, std::int64_t source_length,
                                   std::int64_t target_length, std::int64_t model_vocabulary,
                                   std::uint64_t seed);

  // Safe to call from many threads at a time. Rows beyond an example's end are padded: labels with
  // -1, and `lengths` is set unless every source is full.
  Status fill(std::int64_t first, Batch& batch) override;
  std::int64_t samples() const override {
    return static_cast<std::int64_t>(std::min<std::uint64_t>(mixture_->end(), INT64_MAX));
  }

  // Its languages; one that several corpora of a mixture have is one.
  std::vector<std::string> group_names() const override { return group_names_; }
  std::size_t group_of(std::int64_t sample) const override {
    return group_of_stream_[mixture_->at(static_cast<std::uint64_t>(sample)).stream];
  }

  const Corpus& corpus() const { return *corpora_.front(); }
  const Objective& objective() const { return *objective_; }
  const SpecialIds& special() const { return special_; }
  std::int64_t sentinels() const { return sentinels_; }
  const Mixture& mixture() const { return *mixture_; }
  // Of the rows that it fills.
  std::int64_t target_length() const { return limits_.target; }
  // Whether examples are always as long as the batch's sources, so that no lengths are needed.
  bool always_full() const;
  // Languages with too little text for any example, which are left out: fewer than two tokens.
  const std::vector<std::string>& left_out() const { return left_out_; }

  // A sample, taken apart; for people and tests.
  struct Stretch {
    std::string corpus, language;
    std::uint64_t epoch = 0, begin = 0;  // of the language; first token in it
    std::int64_t tokens = 0;             // of all its texts
    std::int64_t texts = 1;
  };
  Result<Stretch> stretch_of(std::int64_t sample) const;
  // The languages sampled: name, rows in an epoch, share of the samples as the run begins.
  struct Language {
    std::string corpus, name;
    std::uint64_t rows = 0;
    double share = 0;
    std::uint64_t tokens = 0, documents = 0;
    const PackedStream* packed = nullptr;  // if rows are packed
  };
  std::vector<Language> languages() const;

 private:
  struct Stream {
    std::string folder, name;
    const TokenStream* tokens;
    std::unique_ptr<PackedStream> packed;  // one of the two
    std::optional<Stretches> stretches;
    std::uint64_t rows() const { return packed ? packed->rows() : stretches->rows(); }
  };
  // One row of a batch.
  struct Row {
    std::span<std::int32_t> source, labels;
    std::span<std::int32_t> source_segments, source_positions, target_segments, target_positions;
    std::int32_t source_used = 0;
  };
  CorpusSource() = default;
  Status open_objective(const CorpusConfig& config, std::int64_t source_length,
                        std::int64_t target_length, std::int64_t model_vocabulary);
  Status open_streams(const CorpusConfig& config, const std::vector<MixtureEntry>& entries);
  void choose_target(const CorpusConfig& config, const std::vector<MixtureEntry>& entries);
  Status fill_full(std::uint64_t sample, std::vector<std::int32_t>& tokens, Row& row) const;
  Status fill_packed(std::uint64_t sample, std::vector<std::int32_t>& tokens, Row& row) const;

  std::vector<std::unique_ptr<Corpus>> corpora_;
  std::vector<Stream> streams_;
  // Others point to these: they stay where they are.
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<DenoiserTable> table_;
  std::unique_ptr<Mixture> mixture_;
  SpecialIds special_;
  std::int64_t sentinels_ = 0;
  std::uint64_t seed_ = 0;
  RowLimits limits_;
  bool pack_ = false;
  std::vector<std::string> left_out_;
  std::vector<std::string> group_names_;
  std::vector<std::size_t> group_of_stream_;
};

}  // namespace quintet
