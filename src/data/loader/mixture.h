// Which text sample i comes from, where several corpora are mixed: by weights, for a number of
// epochs, in some phases of a run and not in others. A function of (configuration, seed, i) alone:
// the same on every layout, and after every interruption.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/loader/language_schedule.h"

namespace quintet {

// One corpus of a mixture, as the configuration has it:
//   "FOLDER weight=2 epochs=1.5 alpha=0.5 only=de,fr exclude=en weights=de:3,fr:1 from=0 until=N"
// All but the folder can be left out.
struct MixtureEntry {
  std::string folder;
  double weight = 1;  // of its samples among all corpora's
  double epochs = 0;  // of each language at most, then the others share its part; 0: no end
  double alpha = -1;  // below 0: the configuration's
  std::vector<std::string> only, exclude;
  std::vector<std::pair<std::string, double>> weights;  // by language; empty: by alpha
  std::uint64_t from = 0, until = UINT64_MAX;           // samples in which it takes part

  static Result<MixtureEntry> parse(const std::string& text);
};

// "de=2": a language's weight.
Result<std::pair<std::string, double>> parse_language_weight(const std::string& text);

// A language of a corpus as part of an entry.
struct MixturePart {
  std::size_t stream = 0;  // index of the text; several parts can be of one
  double weight = 0;       // its entry's weight shared out
  std::size_t entry = 0;
  std::uint64_t limit = UINT64_MAX;  // rows of the text that may be used in all
  std::uint64_t from = 0, until = UINT64_MAX;
};

// Safe to use from many threads.
class Mixture {
 public:
  struct Place {
    std::size_t stream = 0;
    std::uint64_t number = 0;  // among the samples of that text, from 0
  };

  // `streams`: how many texts there are.
  Mixture(std::vector<MixturePart> parts, std::size_t streams, std::uint64_t seed);

  // Nothing is left after `end()` samples; UINT64_MAX: there is no end.
  std::uint64_t end() const { return end_; }
  Place at(std::uint64_t sample) const;

  // A stretch of the run with unchanging weights.
  struct Phase {
    std::uint64_t begin = 0, end = 0;   // samples
    std::vector<std::size_t> streams;   // those that take part
    std::vector<double> weights;        // of them
    std::vector<std::uint64_t> before;  // of all streams: samples used in earlier phases
  };
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  std::shared_ptr<const LanguageSchedule> schedule(std::size_t phase) const;

  std::uint64_t seed_, end_ = UINT64_MAX;
  std::vector<Phase> phases_;
  // The schedules of the last phases asked for: a run is in one, or between two.
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<std::size_t, std::shared_ptr<const LanguageSchedule>>> kept_;
};

}  // namespace quintet
