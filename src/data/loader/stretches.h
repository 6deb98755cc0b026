// A language's text as rows that are full of it: documents joined, cut into stretches of as many
// tokens as a row takes. Where the objective has several kinds of denoising these take different
// numbers of tokens; they follow one another by a table, in proportion to their weights, so that
// every token is used. Stretch i is a function of (length of the text, seed, i).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader/objective.h"

namespace quintet {

// The order of denoisers, the same for all languages. Immutable.
class DenoiserTable {
 public:
  DenoiserTable(const Objective& objective, std::uint64_t seed);

  std::size_t rows() const { return denoisers_.size(); }
  std::uint64_t tokens() const { return ends_.back(); }  // of all rows
  std::uint8_t denoiser(std::size_t row) const { return denoisers_[row]; }
  std::uint64_t begin(std::size_t row) const { return row == 0 ? 0 : ends_[row - 1]; }
  std::uint64_t end(std::size_t row) const { return ends_[row]; }
  // How many rows, from the first on, so many tokens are enough for.
  std::size_t rows_in(std::uint64_t tokens) const;

 private:
  std::vector<std::uint8_t> denoisers_;
  std::vector<std::uint64_t> ends_;
};

class Stretches {
 public:
  // `text_tokens`: at least Denoiser::kLeastTokens. `table` must outlive it.
  Stretches(std::string name, std::uint64_t text_tokens, const DenoiserTable& table,
            std::uint64_t seed);

  std::uint64_t rows() const { return rows_; }  // of an epoch
  // Whether the text is too short for the first row: then it is all of it, and not full.
  bool short_of_text() const { return text_tokens_ < table_->end(0); }

  struct Stretch {
    std::uint64_t epoch = 0, begin = 0, tokens = 0;  // the text is a circle
    std::uint8_t denoiser = 0;
  };
  Stretch at(std::uint64_t number) const;

 private:
  std::string name_;
  std::uint64_t text_tokens_;
  const DenoiserTable* table_;
  std::uint64_t seed_, rows_;
};

}  // namespace quintet
