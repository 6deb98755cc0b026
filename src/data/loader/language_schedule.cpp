#include "data/loader/language_schedule.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/philox.h"
#include "data/loader/apportion.h"

namespace quintet {
namespace {

std::vector<double> powers(std::span<const std::uint64_t> examples, double alpha) {
  std::vector<double> weights;
  for (const std::uint64_t count : examples) {
    QT_CHECK(count > 0, "a language without examples");
    weights.push_back(std::pow(static_cast<double>(count), alpha));
  }
  return weights;
}

}  // namespace

LanguageSchedule::LanguageSchedule(std::span<const std::uint64_t> examples, double alpha,
                                   std::uint64_t seed)
    : LanguageSchedule(powers(examples, alpha), seed) {}

LanguageSchedule::LanguageSchedule(std::span<const double> weights, std::uint64_t seed,
                                   std::uint64_t stream) {
  QT_CHECK(!weights.empty() && weights.size() <= UINT16_MAX, "{} languages", weights.size());
  counts_ = apportion(kBlock, weights);
  for (std::size_t language = 0; language < counts_.size(); ++language) {
    languages_.insert(languages_.end(), counts_[language], static_cast<std::uint16_t>(language));
  }
  PhiloxSequence random(seed, stream_of("languages") + stream);
  for (std::uint32_t i = kBlock - 1; i > 0; --i) {
    std::swap(languages_[i], languages_[random.below(i + 1)]);
  }
  std::vector<std::uint32_t> seen(counts_.size(), 0);
  ranks_.reserve(kBlock);
  for (const std::uint16_t language : languages_) ranks_.push_back(seen[language]++);
}

std::uint64_t LanguageSchedule::count_before(std::size_t language, std::uint64_t sample) const {
  const std::uint64_t block = sample / kBlock, place = sample % kBlock;
  const auto part = std::count(languages_.begin(),
                               languages_.begin() + static_cast<std::ptrdiff_t>(place), language);
  return block * counts_[language] + static_cast<std::uint64_t>(part);
}

std::uint64_t LanguageSchedule::sample_of(std::size_t language, std::uint64_t number) const {
  const std::uint64_t block = number / counts_[language], rank = number % counts_[language];
  for (std::uint64_t place = 0; place < kBlock; ++place) {
    if (languages_[place] == language && ranks_[place] == rank) return block * kBlock + place;
  }
  QT_CHECK(false, "language {} has no sample {}", language, number);
  return 0;
}

}  // namespace quintet
