// Beam search over the candidates that a model gives for each row: which rows go on, with which
// word and from whose past, and what has been finished. Knows nothing of models or devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quintet {

// What was generated for one source.
struct Generated {
  std::vector<std::int32_t> words;  // the end not included
  double log_probability = 0;       // of the words, and of the end where it was reached
};

class BeamSearch {
 public:
  struct Options {
    std::int64_t sequences = 1, beams = 2;
    std::int64_t tokens = 0;    // of a result at most, the end included
    std::int32_t end = 1;       // the word that finishes a result
    double length_penalty = 1;  // scores are log-probability / length^penalty
  };
  explicit BeamSearch(const Options& options);

  // Takes the candidates of all rows, [rows, count], best first; count >= 2 beams, so that enough
  // are left when every beam could end. Rows of a finished sequence go on idly.
  void advance(std::span<const std::int32_t> words, std::span<const float> log_probabilities,
               std::int64_t count);
  // For the next token: each row's word, and the row whose past it continues.
  std::span<const std::int32_t> words() const { return words_; }
  std::span<const std::int32_t> parents() const { return parents_; }
  bool done() const;

  // The best result of each sequence.
  std::vector<Generated> results() const;

 private:
  struct Result {
    double score = 0;
    Generated generated;
  };
  struct Sequence {
    std::vector<double> scores;                    // of the beams; log-probabilities
    std::vector<std::vector<std::int32_t>> pasts;  // of the beams
    std::vector<Result> finished;                  // the best, best first
    bool done = false;
  };
  void advance_one(std::int64_t s, std::span<const std::int32_t> words,
                   std::span<const float> log_probabilities, std::int64_t count);
  void finish(Sequence& sequence, double log_probability, std::vector<std::int32_t> words,
              std::int64_t length) const;
  double score_of(double log_probability, std::int64_t length) const;

  const Options options_;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> words_, parents_;
  std::int64_t length_ = 0;
};

}  // namespace quintet
