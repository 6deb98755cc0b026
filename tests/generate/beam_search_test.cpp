// Beam search against an exhaustive one, on made-up models whose next word depends on the last.
#include "generate/beam_search.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "generate/next_words.h"

namespace quintet {
namespace {

constexpr std::int32_t kEnd = 1, kWords = 5;

// log P(next | last), random for each seed.
std::vector<std::vector<double>> random_chain(std::uint64_t seed) {
  std::vector<std::vector<double>> chain(kWords, std::vector<double>(kWords));
  for (std::size_t from = 0; from < kWords; ++from) {
    PhiloxSequence random(seed, from);
    double total = 0;
    for (double& value : chain[from]) total += value = 0.05 + random.uniform();
    for (double& value : chain[from]) value = std::log(value / total);
  }
  return chain;
}

struct Found {
  double score = -std::numeric_limits<double>::infinity();
  std::vector<std::int32_t> words;
};

// All results of up to `tokens` words.
Found exhaustive(const std::vector<std::vector<double>>& chain, std::int64_t tokens,
                 double penalty) {
  Found best;
  std::vector<std::int32_t> words;
  const std::function<void(std::size_t, double)> visit = [&](std::size_t last, double sum) {
    const auto length = static_cast<double>(words.size() + 1);
    for (std::size_t word = 0; word < kWords; ++word) {
      const double total = sum + chain[last][word];
      const bool ends = word == kEnd, full = words.size() + 1 == static_cast<std::size_t>(tokens);
      if (!ends) words.push_back(static_cast<std::int32_t>(word));
      if (ends || full) {
        const double score = total / std::pow(length, penalty);
        if (score > best.score) best = {score, words};
      } else {
        visit(word, total);
      }
      if (!ends) words.pop_back();
    }
  };
  visit(0, 0);
  return best;
}

std::vector<std::int32_t> searched(const std::vector<std::vector<double>>& chain,
                                   std::int64_t tokens, std::int64_t beams, double penalty) {
  BeamSearch search({1, beams, tokens, kEnd, penalty});
  std::vector<std::int32_t> last(static_cast<std::size_t>(beams), 0);
  while (!search.done()) {
    std::vector<std::int32_t> words;
    std::vector<float> values;
    for (const std::int32_t from : last) {
      std::vector<std::int32_t> order(kWords);
      for (std::int32_t w = 0; w < kWords; ++w) order[static_cast<std::size_t>(w)] = w;
      const auto& row = chain[static_cast<std::size_t>(from)];
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
        return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
      });
      for (const std::int32_t word : order) {
        words.push_back(word);
        values.push_back(static_cast<float>(row[static_cast<std::size_t>(word)]));
      }
    }
    search.advance(words, values, kWords);
    last.assign(search.words().begin(), search.words().end());
  }
  return search.results().front().words;
}

TEST(BeamSearch, WithBeamsForEverythingFindsTheBestOfAll) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const auto chain = random_chain(seed);
    const double penalty = seed % 3 == 0 ? 0 : 1;
    EXPECT_EQ(searched(chain, 4, 300, penalty), exhaustive(chain, 4, penalty).words) << seed;
  }
}

TEST(BeamSearch, OneBeamMoreIsNeverFarFromGreedyAndRowsPointIntoTheirOwnSequence) {
  BeamSearch search({2, 2, 3, kEnd, 1});
  // Sequence 0 ends at once; sequence 1 goes on, its second word from its second beam.
  search.advance(std::vector<std::int32_t>{1, 2, 3, 4, 1, 2, 3, 4, 2, 3, 4, 1, 2, 3, 4, 1},
                 std::vector<float>{-0.1F, -3, -4, -5, -0.1F, -3, -4, -5, -1, -1.1F, -2, -9, -1,
                                    -1.1F, -2, -9},
                 4);
  EXPECT_EQ(search.words()[2], 2);
  EXPECT_EQ(search.words()[3], 3);
  EXPECT_EQ(search.parents()[2], 2);
  EXPECT_EQ(search.parents()[3], 2);  // at the start one beam speaks for all
  search.advance(std::vector<std::int32_t>{1, 2, 3, 4, 1, 2, 3, 4, 4, 1, 2, 3, 4, 2, 1, 3},
                 std::vector<float>{-0.1F, -3, -4, -5, -0.1F, -3, -4, -5, -5, -6, -7, -8, -0.1F,
                                    -0.2F, -9, -9},
                 4);
  EXPECT_EQ(search.parents()[2], 3);
  EXPECT_EQ(search.parents()[3], 3);
  EXPECT_EQ(search.words()[2], 4);
  const auto results = search.results();
  EXPECT_TRUE(results[0].words.empty());
  EXPECT_NEAR(results[0].log_probability, -0.1, 1e-6);
}

TEST(Choose, FollowsTheProbabilities) {
  const std::vector<float> values = {std::log(0.5F), std::log(0.3F), std::log(0.15F),
                                     std::log(0.05F)};
  EXPECT_EQ(choose(values, {.temperature = 0}, 3, 4), 0);
  const auto counts = [&](const Choice& choice) {
    std::vector<int> count(4, 0);
    for (std::int64_t row = 0; row < 20000; ++row)
      ++count[static_cast<std::size_t>(choose(values, choice, row, row % 7))];
    return count;
  };
  const auto plain = counts({.temperature = 1, .seed = 5});
  EXPECT_NEAR(plain[0], 10000, 400);  // six standard deviations and more
  EXPECT_NEAR(plain[1], 6000, 400);
  EXPECT_NEAR(plain[3], 1000, 200);
  const auto sharp =
      counts({.temperature = 0.5, .seed = 5});  // squares: 0.25, 0.09, 0.0225, 0.0025
  EXPECT_NEAR(sharp[0], 20000 * 0.25 / 0.365, 400);
  const auto nucleus = counts({.temperature = 1, .top_p = 0.7, .seed = 5});
  EXPECT_NEAR(nucleus[0], 20000 * 0.5 / 0.8, 400);
  EXPECT_EQ(nucleus[2], 0);
  EXPECT_EQ(choose(values, {.temperature = 1, .seed = 9}, 17, 3),
            choose(values, {.temperature = 1, .seed = 9}, 17, 3));
}

}  // namespace
}  // namespace quintet
