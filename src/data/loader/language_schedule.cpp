#include "data/loader/language_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/philox.h"

namespace quintet {
namespace {

// Divides `places` by weight: one for each, the rest in proportion, the last ones to the largest
// remainders.
std::vector<std::uint64_t> apportion(std::uint64_t places, std::span<const double> weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto free = static_cast<double>(places - weights.size());
  std::vector<std::uint64_t> counts;
  std::vector<std::pair<double, std::size_t>> remainders;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double part = weights[i] / total * free;
    counts.push_back(1 + static_cast<std::uint64_t>(part));
    remainders.emplace_back(std::floor(part) - part, i);
  }
  std::sort(remainders.begin(), remainders.end());
  std::uint64_t used = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  for (std::size_t i = 0; used < places; ++i, ++used) ++counts[remainders[i].second];
  return counts;
}

}  // namespace

LanguageSchedule::LanguageSchedule(std::span<const std::uint64_t> examples, double alpha,
                                   std::uint64_t seed) {
  QT_CHECK(!examples.empty() && examples.size() <= UINT16_MAX, "{} languages", examples.size());
  std::vector<double> weights;
  for (const std::uint64_t count : examples) {
    QT_CHECK(count > 0, "a language without examples");
    weights.push_back(std::pow(static_cast<double>(count), alpha));
  }
  counts_ = apportion(kBlock, weights);
  for (std::size_t language = 0; language < counts_.size(); ++language) {
    languages_.insert(languages_.end(), counts_[language], static_cast<std::uint16_t>(language));
  }
  PhiloxSequence random(seed, stream_of("languages"));
  for (std::uint32_t i = kBlock - 1; i > 0; --i) {
    std::swap(languages_[i], languages_[random.below(i + 1)]);
  }
  std::vector<std::uint32_t> seen(counts_.size(), 0);
  ranks_.reserve(kBlock);
  for (const std::uint16_t language : languages_) ranks_.push_back(seen[language]++);
}

}  // namespace quintet
