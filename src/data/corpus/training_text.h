// Text to train a tokenizer on, read as `quintet data build` reads it: the same files, formats and
// documents. Keeps a random part of it where it is more than fits.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/corpus/documents.h"
#include "data/corpus/inputs.h"

namespace quintet {

struct TrainingTextOptions {
  InputOptions inputs;
  std::uint64_t max_bytes = std::uint64_t{256} << 20;  // of text that is kept
  std::uint64_t max_sentences = 10'000'000;
  std::int64_t bad_lines = 100;  // so many are passed over; one more is an error
};

struct TrainingText {
  // Documents; longer ones in pieces that the library takes, cut where there is a space if
  // possible, and with a space for each U+2585, which the library keeps to itself.
  std::vector<std::string> sentences;
  std::uint64_t documents = 0, bytes = 0;  // that were read
  std::uint64_t kept_bytes = 0;
  std::vector<NotTaken> not_taken;
  std::int64_t bad_lines = 0, too_long = 0;
  std::vector<std::string> first_bad_lines;
  std::map<std::string, std::int64_t> left_out;
};

// The longest sentence that the library takes; what is longer it would drop.
inline constexpr std::size_t kMaxSentenceBytes = 4192;

// `progress` is told the bytes of files read, of how many, now and then.
Result<TrainingText> read_training_text(
    const TrainingTextOptions& options,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress,
    const std::atomic<bool>* stop = nullptr);

}  // namespace quintet
