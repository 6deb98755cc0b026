// Examples that are given: pairs of source and target text, for training on a task. They are
// tokenized when the source is opened and stay in memory, cut to what the model is fed. Sample i is
// a function of (files, tokenizer, seed, i): every epoch takes all pairs in a random order of its
// own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "data/batch.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {

struct PairsConfig {
  std::vector<std::string> files;
  std::string tokenizer;  // file, or folder with one
  std::string source_field = "source", target_field = "target";

  // Adds its fields to the section at hand.
  void list(FieldList& fields);
};

class PairsSource final : public BatchSource {
 public:
  // Reads all of the files: JSON lines, CSV, TSV (each plain or compressed) or Parquet. Refused,
  // with file and line: what is not such a record, a field that is missing or no text.
  static Result<PairsSource> open(const PairsConfig& config, std::int64_t source_length,
                                  std::int64_t target_length, std::int64_t model_vocabulary,
                                  std::uint64_t seed);

  // Safe to call from many threads at a time.
  Status fill(std::int64_t first, Batch& batch) override;

  std::int64_t pairs() const { return std::ssize(pairs_); }
  // How many were longer than the rows and lost their ends.
  std::int64_t cut_sources() const { return cut_sources_; }
  std::int64_t cut_targets() const { return cut_targets_; }
  // Which pair a sample is, counted through the files.
  std::uint64_t pair_of(std::int64_t sample) const;
  // Stands for all ids: ranks that have the same have the same pairs.
  std::string digest() const;
  // For people: how many there are, and what was cut.
  std::string description() const;

 private:
  struct Pair {
    std::uint64_t begin = 0;  // of the source in ids_; the target follows
    std::uint32_t source = 0, target = 0;
  };
  PairsSource() = default;
  Status read_files(const PairsConfig& config, const Tokenizer& tokenizer);
  Status add(std::string_view line, const std::string& place, const PairsConfig& config,
             Encoder& encoder);
  Status append(const std::string& text, std::int64_t length, std::int64_t& cut, Encoder& encoder);

  std::vector<Pair> pairs_;
  std::vector<std::int32_t> ids_;
  std::int64_t source_length_ = 0, target_length_ = 0, cut_sources_ = 0, cut_targets_ = 0;
  std::int32_t eos_ = 1;
  std::uint64_t seed_ = 0;
  Buffer<std::int32_t> text_ids_;  // of one text, while reading
};

}  // namespace quintet
