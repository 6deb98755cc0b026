#include "generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/index.h"

namespace quintet {

BeamSearch::BeamSearch(const Options& options)
    : options_(options),
      sequences_(index(options.sequences)),
      words_(index(options.sequences * options.beams), options.end),
      parents_(index(options.sequences * options.beams), 0) {
  for (std::size_t row = 0; row < parents_.size(); ++row)
    parents_[row] = static_cast<std::int32_t>(row);
  for (Sequence& sequence : sequences_) {
    // At the start all beams are the same: one of them speaks for all.
    sequence.scores.assign(index(options.beams), -std::numeric_limits<double>::infinity());
    sequence.scores[0] = 0;
    sequence.pasts.resize(index(options.beams));
  }
}

double BeamSearch::score_of(double log_probability, std::int64_t length) const {
  return log_probability / std::pow(static_cast<double>(length), options_.length_penalty);
}

void BeamSearch::finish(Sequence& sequence, double log_probability, std::vector<std::int32_t> words,
                        std::int64_t length) const {
  auto& finished = sequence.finished;
  finished.push_back({score_of(log_probability, length), {std::move(words), log_probability}});
  std::stable_sort(finished.begin(), finished.end(),
                   [](const Result& a, const Result& b) { return a.score > b.score; });
  if (finished.size() > index(options_.beams)) finished.pop_back();
}

void BeamSearch::advance(std::span<const std::int32_t> words,
                         std::span<const float> log_probabilities, std::int64_t count) {
  ++length_;
  for (std::int64_t s = 0; s < options_.sequences; ++s) {
    const std::int64_t first = s * options_.beams;
    if (sequences_[index(s)].done) {
      for (std::int64_t b = 0; b < options_.beams; ++b)
        parents_[index(first + b)] = static_cast<std::int32_t>(first + b);
      continue;
    }
    advance_one(s, words.subspan(index(first * count), index(options_.beams * count)),
                log_probabilities.subspan(index(first * count), index(options_.beams * count)),
                count);
  }
}

void BeamSearch::advance_one(std::int64_t s, std::span<const std::int32_t> words,
                             std::span<const float> log_probabilities, std::int64_t count) {
  Sequence& sequence = sequences_[index(s)];
  struct Candidate {
    double log_probability;
    std::int64_t beam;
    std::int32_t word;
  };
  std::vector<Candidate> candidates;
  for (std::int64_t b = 0; b < options_.beams; ++b) {
    if (std::isinf(sequence.scores[index(b)])) continue;
    for (std::int64_t c = 0; c < count; ++c) {
      const std::size_t at = index(b * count + c);
      candidates.push_back(
          {sequence.scores[index(b)] + static_cast<double>(log_probabilities[at]), b, words[at]});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.log_probability > b.log_probability;
  });

  std::vector<double> scores;
  std::vector<std::vector<std::int32_t>> pasts;
  for (std::size_t i = 0; i < candidates.size() && scores.size() < index(options_.beams); ++i) {
    const Candidate& candidate = candidates[i];
    if (candidate.word == options_.end) {
      // An end that is not among the best beams would not have gone on either.
      if (i < index(options_.beams)) {
        finish(sequence, candidate.log_probability, sequence.pasts[index(candidate.beam)], length_);
      }
      continue;
    }
    const std::size_t row = index(s * options_.beams) + scores.size();
    words_[row] = candidate.word;
    parents_[row] = static_cast<std::int32_t>(s * options_.beams + candidate.beam);
    scores.push_back(candidate.log_probability);
    pasts.push_back(sequence.pasts[index(candidate.beam)]);
    pasts.back().push_back(candidate.word);
  }
  // Fewer candidates than beams, in a vocabulary of few words: the rest stands still.
  while (scores.size() < index(options_.beams)) {
    const std::size_t row = index(s * options_.beams) + scores.size();
    words_[row] = options_.end;
    parents_[row] = static_cast<std::int32_t>(row);
    scores.push_back(-std::numeric_limits<double>::infinity());
    pasts.emplace_back();
  }
  sequence.scores = std::move(scores);
  sequence.pasts = std::move(pasts);

  const double best = sequence.scores[0];
  const bool full = sequence.finished.size() == index(options_.beams);
  const bool cannot_improve =
      std::isinf(best) || (full && sequence.finished.back().score >= score_of(best, length_));
  if (length_ == options_.tokens) {
    for (std::size_t b = 0; b < sequence.scores.size(); ++b) {
      if (!std::isinf(sequence.scores[b]))
        finish(sequence, sequence.scores[b], sequence.pasts[b], length_);
    }
  }
  sequence.done = cannot_improve || length_ == options_.tokens;
}

bool BeamSearch::done() const {
  return std::all_of(sequences_.begin(), sequences_.end(),
                     [](const Sequence& sequence) { return sequence.done; });
}

std::vector<Generated> BeamSearch::results() const {
  std::vector<Generated> results;
  for (const Sequence& sequence : sequences_) {
    results.push_back(sequence.finished.empty()
                          ? Generated{sequence.pasts.front(), sequence.scores.front()}
                          : sequence.finished.front().generated);
  }
  return results;
}

}  // namespace quintet
