#include "data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/index.h"

namespace quintet {
namespace {

constexpr std::int64_t kSentinels = 100;
constexpr std::int64_t kReserved = 3;  // pad, end of sequence, unknown

// An index drawn with the given probabilities.
std::int64_t draw(const double* probabilities, std::int64_t count, PhiloxSequence& random) {
  double rest = random.uniform();
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    rest -= probabilities[i];
    if (rest < 0) return i;
  }
  // The last word with any probability: rounding must not draw an impossible one.
  std::int64_t last = count - 1;
  while (last > 0 && probabilities[last] == 0) --last;
  return last;
}

}  // namespace

Result<SyntheticCorpus> SyntheticCorpus::create(const SyntheticConfig& config,
                                                const SpanCorruptionConfig& spans,
                                                std::int64_t vocab_size, std::int64_t source_length,
                                                std::int64_t target_length, std::uint64_t seed) {
  const std::int64_t room = vocab_size - kSentinels - kReserved;
  if (config.languages * config.words > room) {
    return usage_error(
        "the synthetic corpus has {} languages of {} words; a vocabulary of {} has room for {} "
        "words beside "
        "{} sentinels (data.languages, data.words)",
        config.languages, config.words, vocab_size, std::max<std::int64_t>(room, 0), kSentinels);
  }
  SyntheticCorpus corpus;
  corpus.config_ = config;
  corpus.config_.branching = std::min(config.branching, config.words);
  corpus.seed_ = seed;
  corpus.ids_ = {1, static_cast<std::int32_t>(vocab_size - 1)};
  QT_ASSIGN(corpus.counts_, fit_spans(source_length, target_length, kSentinels, spans));
  for (std::int64_t l = 0; l < config.languages; ++l) {
    corpus.languages_.push_back(corpus.make_language(index(l)));
  }
  return corpus;
}

SyntheticCorpus::Language SyntheticCorpus::make_language(std::size_t language) const {
  const std::int64_t words = config_.words;
  PhiloxSequence random(seed_, stream_of("language") + language);
  Language result;
  result.transition.assign(index(words * words), 0);
  std::vector<std::int64_t> order(index(words));
  double total = 0;
  for (std::int64_t k = 0; k < config_.branching; ++k) total += std::pow(config_.skew, k);
  for (std::int64_t from = 0; from < words; ++from) {
    std::iota(order.begin(), order.end(), std::int64_t{0});
    for (std::int64_t k = 0; k < config_.branching; ++k) {
      // A partial shuffle draws distinct successors. The likeliest is the next word of a ring, so
      // that every word is reached from every other.
      std::int64_t pick = k + random.below(static_cast<std::uint32_t>(words - k));
      if (k == 0) pick = (from + 1) % words;
      std::swap(order[index(k)], order[index(pick)]);
      result.transition[index(from * words + order[index(k)])] += std::pow(config_.skew, k) / total;
    }
  }
  result.stationary.assign(index(words), 1.0 / static_cast<double>(words));
  std::vector<double> next(index(words));
  for (int round = 0; round < 2000; ++round) {
    std::fill(next.begin(), next.end(), 0);
    for (std::int64_t from = 0; from < words; ++from) {
      for (std::int64_t to = 0; to < words; ++to) {
        next[index(to)] +=
            result.stationary[index(from)] * result.transition[index(from * words + to)];
      }
    }
    // Half a step keeps a periodic chain from swinging.
    for (std::int64_t i = 0; i < words; ++i) {
      result.stationary[index(i)] = 0.5 * (result.stationary[index(i)] + next[index(i)]);
    }
  }
  // Powers of the transition matrix up to the longest gap plus the step out of it.
  std::vector<double> identity(index(words * words), 0);
  for (std::int64_t i = 0; i < words; ++i) identity[index(i * words + i)] = 1;
  result.powers.push_back(std::move(identity));
  const std::int64_t longest = counts_.noise - counts_.spans + 2;
  for (std::int64_t n = 1; n <= longest; ++n) {
    const std::vector<double>& before = result.powers.back();
    std::vector<double> power(index(words * words), 0);
    for (std::int64_t i = 0; i < words; ++i) {
      for (std::int64_t k = 0; k < words; ++k) {
        const double p = before[index(i * words + k)];
        if (p == 0) continue;
        for (std::int64_t j = 0; j < words; ++j) {
          power[index(i * words + j)] += p * result.transition[index(k * words + j)];
        }
      }
    }
    result.powers.push_back(std::move(power));
  }
  return result;
}

void SyntheticCorpus::make_example(std::uint64_t seed, std::int64_t number,
                                   Example& example) const {
  PhiloxSequence random(seed, stream_of("example") + static_cast<std::uint64_t>(number));
  example.language = random.below(static_cast<std::uint32_t>(languages_.size()));
  const Language& language = languages_[example.language];
  const std::int64_t words = config_.words;
  example.tokens.resize(index(counts_.tokens));
  std::int64_t word = draw(language.stationary.data(), words, random);
  for (std::int32_t& token : example.tokens) {
    token = word_id(example.language, word);
    word = draw(&language.transition[index(word * words)], words, random);
  }
  example.source.resize(index(counts_.source_length()));
  example.labels.resize(index(counts_.target_length()));
  corrupt_spans(example.tokens, counts_, ids_, random, example.source, example.labels);
}

std::vector<std::string> SyntheticCorpus::group_names() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < languages_.size(); ++i)
    names.push_back("language " + std::to_string(i));
  return names;
}

std::size_t SyntheticCorpus::group_of(std::int64_t sample) const {
  Example example;
  make_example(seed_, sample, example);
  return example.language;
}

Status SyntheticCorpus::fill(std::int64_t first, Batch& batch) {
  QT_CHECK(batch.source_length >= counts_.source_length() &&
               batch.target_length >= counts_.target_length(),
           "batch of {} x {} for examples of {} x {}", batch.source_length, batch.target_length,
           counts_.source_length(), counts_.target_length());
  Example example;
  const bool padded = batch.source_length > counts_.source_length();
  if (padded)
    batch.lengths.assign(index(batch.sequences),
                         static_cast<std::int32_t>(counts_.source_length()));
  std::fill(batch.source.begin(), batch.source.end(), 0);
  std::fill(batch.labels.begin(), batch.labels.end(), -1);
  for (std::int64_t i = 0; i < batch.sequences; ++i) {
    make_example(seed_, first + i, example);
    std::copy(example.source.begin(), example.source.end(),
              batch.source.begin() + i * batch.source_length);
    std::copy(example.labels.begin(), example.labels.end(),
              batch.labels.begin() + i * batch.target_length);
  }
  shift_right(batch.labels, batch.target_length, 0, 0, batch.target);
  return {};
}

// p(target | source): the source shows which words surround each gap, not how long a gap is. All
// ways to distribute the missing words over the gaps are equally likely beforehand, so
//
//   p(target | source) = prod over gaps P(path through the gap) / Z,
//   Z = sum over lengths l_1 + ... + l_s = n of  prod T^(l_i + 1)[left_i, right_i],
//
// where the last gap, at the end of the text, has no right neighbour and counts 1.
double SyntheticCorpus::negative_log_likelihood(const Example& example) const {
  const Language& language = languages_[example.language];
  const std::int64_t words = config_.words;
  const std::int32_t base = word_id(example.language, 0);
  const auto is_word = [&](std::int32_t id) { return id >= base && id < base + words; };

  // 1. The path that was taken: every step into a missing word, and out of a gap.
  //    Walk source and labels in step.
  double log_path = 0;
  std::vector<double> ways(index(counts_.noise + 1), 0);  // Z's terms by words used so far
  ways[0] = 1;
  std::size_t at_label = 0;
  for (std::size_t i = 0; i < example.source.size(); ++i) {
    const std::int32_t id = example.source[i];
    if (is_word(id) || id == ids_.eos) continue;
    const std::int64_t left = example.source[i - 1] - base;
    const bool last = example.source[i + 1] == ids_.eos;
    const std::int64_t right = last ? 0 : example.source[i + 1] - base;
    std::int64_t from = left;
    for (++at_label; is_word(example.labels[at_label]); ++at_label) {
      const std::int64_t to = example.labels[at_label] - base;
      log_path += std::log(language.transition[index(from * words + to)]);
      from = to;
    }
    if (!last) log_path += std::log(language.transition[index(from * words + right)]);
    // 2. All the ways there were.
    std::vector<double> next(ways.size(), 0);
    for (std::size_t used = 0; used < ways.size(); ++used) {
      if (ways[used] == 0) continue;
      for (std::size_t length = 1; used + length < ways.size(); ++length) {
        if (length + 1 >= language.powers.size()) break;
        const double step = last ? 1.0 : language.powers[length + 1][index(left * words + right)];
        next[used + length] += ways[used] * step;
      }
    }
    ways = std::move(next);
  }
  return std::log(ways[index(counts_.noise)]) - log_path;
}

double SyntheticCorpus::optimal_loss(std::int64_t examples) const {
  double total = 0;
  Example example;
  for (std::int64_t i = 0; i < examples; ++i) {
    make_example(seed_ ^ 0x5eed, i, example);
    total += negative_log_likelihood(example);
  }
  return total / static_cast<double>(examples * counts_.target_length());
}

}  // namespace quintet
