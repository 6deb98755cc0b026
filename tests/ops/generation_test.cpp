// The ops of generation: one token's attention over a cache is the last row of the whole attention;
// the best words are those of a sorted list.
#include "program/ops/generation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/ops/op_case.h"
#include "tests/ops/reference.h"

namespace quintet::testing {
namespace {

class GenerationOps : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, GenerationOps, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

struct CacheSizes {
  std::int64_t rows, room, position, heads, dim;
  bool beams;
};

TEST_P(GenerationOps, CachedAttentionIsTheLastRowOfTheWhole) {
  for (const auto& [rows, room, position, heads, dim, beams] : {CacheSizes{1, 1, 0, 1, 1, false},
                                                                {2, 5, 0, 2, 8, false},
                                                                {2, 5, 4, 3, 7, false},
                                                                {3, 200, 177, 2, 64, false},
                                                                {4, 40, 33, 2, 64, true},
                                                                {2, 17, 16, 1, 256, true}}) {
    const std::int64_t width = heads * dim, length = position + 1;
    const HostTensor qkv = random({rows, length, 3 * width}, dtype(), 1, 0.5);
    const HostTensor bias = random({32, heads}, dtype(), 2);
    // Position j of row r is kept in row (r + j) mod rows where rows go on from each other's past.
    const auto kept_in = [&, n = rows, with_beams = beams, last = position](std::int64_t r,
                                                                            std::int64_t j) {
      return with_beams && j != last ? (r + j) % n : r;
    };
    HostTensor cache = random({rows, room, 2 * width}, dtype(), 3);
    HostTensor origin =
        integers({rows, room}, std::vector<double>(static_cast<std::size_t>(rows * room), 0));
    HostTensor token{{rows, 1, 3 * width}, dtype(), {}};
    HostTensor after = cache;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < length; ++j) {
        origin.at(r * room + j) = static_cast<double>(kept_in(r, j));
        for (std::int64_t c = 0; c < 2 * width; ++c) {
          const std::int64_t to = (kept_in(r, j) * room + j) * 2 * width + c;
          const double value = qkv.at((r * length + j) * 3 * width + width + c);
          after.at(to) = value;
          if (j < position) cache.at(to) = value;
        }
      }
      for (std::int64_t c = 0; c < 3 * width; ++c)
        token.values.push_back(qkv.at((r * length + position) * 3 * width + c));
    }
    AttentionAttrs whole;
    whole.heads = whole.global_heads = static_cast<std::int32_t>(heads);
    whole.head_dim = static_cast<std::int32_t>(dim);
    whole.causal = true;
    whole.buckets = 32;
    whole.max_distance = 128;
    const HostTensor all =
        reference_attention({qkv, none(), bias, none(), none(), none(), none()}, whole).out;
    HostTensor expected{{rows, 1, width}, dtype(), {}};
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < width; ++c)
        expected.values.push_back(all.at((r * length + position) * width + c));
    }
    const CachedAttentionAttrs attrs{whole.heads, whole.head_dim, 32, 128};
    expect_op({"cached_attention",
               OpKind::kCachedAttention,
               attrs,
               {token, cache, bias, integers({1}, {static_cast<double>(position)}),
                beams ? origin : none()},
               {kMake, cached_attention::kCache},
               {}},
              {expected, after}, tolerance(dtype()));
  }
}

TEST_P(GenerationOps, TopLogitsAreTheFirstOfASortedList) {
  for (const auto& [rows, words, count] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {3, 7, 7}, {2, 5000, 1}, {5, 33, 4}, {2, 3001, 64}}) {
    for (const float scale : {1.0F, 0.125F}) {
      HostTensor logits = random({rows, 1, words}, dtype(), 7, 4);
      // Equal ones: the lower word is first.
      if (words > 6) logits.at(5) = logits.at(2) = 30;
      HostTensor best = integers({rows, count}, {});
      HostTensor values{{rows, count}, DType::kF32, {}};
      for (std::int64_t r = 0; r < rows; ++r) {
        std::vector<std::int64_t> order(static_cast<std::size_t>(words));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&, n = words](auto a, auto b) {
          return logits.at(r * n + a) > logits.at(r * n + b);
        });
        const double largest = logits.at(r * words + order[0]);
        double total = 0;
        for (std::int64_t w = 0; w < words; ++w)
          total += std::exp(static_cast<double>(scale) * (logits.at(r * words + w) - largest));
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t word = order[static_cast<std::size_t>(i)];
          best.values.push_back(static_cast<double>(word));
          values.values.push_back(static_cast<double>(scale) *
                                      (logits.at(r * words + word) - largest) -
                                  std::log(total));
        }
      }
      const OpCase c{
          "top_logits", OpKind::kTopLogits, TopLogitsAttrs{static_cast<std::int32_t>(count), scale},
          {logits},     {kMake, kMake},     {}};
      EXPECT_EQ(run_op(c)[0].values, best.values) << words << " " << count;
      expect_op(c, {none(), values}, tolerance(DType::kF32));
    }
  }
}

}  // namespace
}  // namespace quintet::testing
