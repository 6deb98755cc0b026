// Which language sample i is of, and which of that language's samples it is: a function of (seed,
// i) alone, without counting through what came before. Samples come in blocks of 2^20; in every
// block a language has the same number of places, in proportion to examples^alpha, at random.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quintet {

// Immutable; safe to share between threads.
class LanguageSchedule {
 public:
  static constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;

  struct Place {
    std::size_t language = 0;
    std::uint64_t number = 0;  // among the samples of the language, in their order, from 0
  };

  // `examples`: how many each language has, at least one. Every language is sampled, be it once in
  // a block. Takes some milliseconds and 6 MiB, whatever the corpus.
  LanguageSchedule(std::span<const std::uint64_t> examples, double alpha, std::uint64_t seed);
  // The same by weights, above zero. `stream` tells schedules of one seed apart.
  LanguageSchedule(std::span<const double> weights, std::uint64_t seed, std::uint64_t stream = 0);

  Place at(std::uint64_t sample) const {
    const std::uint64_t block = sample / kBlock, place = sample % kBlock;
    const std::size_t language = languages_[place];
    return {language, block * counts_[language] + ranks_[place]};
  }
  // How many samples before `sample` are of a language.
  std::uint64_t count_before(std::size_t language, std::uint64_t sample) const;
  // Which sample is number `number` of a language.
  std::uint64_t sample_of(std::size_t language, std::uint64_t number) const;
  // The share of samples that a language has.
  double share(std::size_t language) const {
    return static_cast<double>(counts_[language]) / static_cast<double>(kBlock);
  }

 private:
  std::vector<std::uint64_t> counts_;     // of each language's places in a block
  std::vector<std::uint16_t> languages_;  // of each place
  std::vector<std::uint32_t> ranks_;      // how many places of the language come before
};

}  // namespace quintet
