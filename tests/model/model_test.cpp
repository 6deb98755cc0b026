#include <cmath>
#include <map>
#include <numbers>

#include <gtest/gtest.h>

#include "base/parallel_for.h"
#include "base/philox.h"
#include "model/init.h"
#include "model/t5.h"
#include "model/t5_config.h"
#include "runtime/dry_run.h"
#include "tests/support/programs.h"

namespace quintet {
namespace {

TEST(Presets, HaveTheParametersOfTheFamily) {
  const std::map<std::string, std::int64_t> expected = {
      {"mt5-small", 300176768}, {"mt5-base", 582401280}, {"mt5-large", 1229581312},
      {"mt5-xl", 3742619648},   {"mt5-7b", 7652361216},  {"mt5-xxl", 12921057280}};
  for (const auto& [name, parameters] : expected) {
    EXPECT_EQ(preset(name).value().parameters(), parameters) << name;
  }
}

TEST(Presets, TheProgramHasExactlyTheseWeights) {
  for (const std::string& name : preset_names()) {
    const T5Config config = preset(name).value();
    const Program program = emit_t5(config, {1, 8, 4, false}, {}, Place{}, {0},
                                    cut_into_stages(config, 8, 4, 1).value());
    std::int64_t count = 0;
    for (const Unit& unit : program.units) {
      for (const Weight& weight : unit.weights) count += weight.shape.numel();
    }
    EXPECT_EQ(count, config.parameters()) << name;
  }
}

TEST(Flops, OpsAddUpToTheClosedFormula) {
  for (const bool gated : {true, false}) {
    for (const std::string& name : preset_names()) {
      StepOptions options;
      options.model = preset(name).value();
      options.model.gated = gated;
      options.batch = {3, 96, 32, false};
      const double formula = 3 * flops_per_sequence(options.model, 96, 32);
      EXPECT_NEAR(dry_run(compile_step(options)).flops, formula, 1e-9 * formula) << name;
    }
  }
}

const char* const kConfig =
    R"({"model_type": "mt5", "vocab_size": 320, "d_model": 64, "d_kv": 16, "num_heads": 3,
  "d_ff": 96, "num_layers": 3, "num_decoder_layers": 2, "feed_forward_proj": "gated-gelu",
  "tie_word_embeddings": false, "dropout_rate": 0.1, "some_other_key": [1, 2]})";

TEST(HfConfig, IsUnderstood) {
  const T5Config c = parse_hf_config(kConfig, "config.json").value();
  EXPECT_EQ(c.vocab_size, 320);
  EXPECT_EQ(c.inner(), 48);
  EXPECT_EQ(c.encoder_layers, 3);
  EXPECT_EQ(c.decoder_layers, 2);
  EXPECT_TRUE(c.gated);
  EXPECT_FALSE(c.tied_head);
  EXPECT_EQ(c.relative_buckets, 32);
  EXPECT_DOUBLE_EQ(c.dropout, 0.1);
}

TEST(HfConfig, WhatWeWriteWeRead) {
  for (const char* proj : {"gated-gelu", "relu"}) {
    for (const bool tied : {false, true}) {
      T5Config c = preset("mini").value();
      c.gated = std::string(proj) == "gated-gelu";
      c.nonlinearity = c.gated ? Nonlinearity::kGeluTanh : Nonlinearity::kRelu;
      c.tied_head = tied;
      const T5Config again = parse_hf_config(to_hf_config(c), c.name).value();
      EXPECT_EQ(to_hf_config(again), to_hf_config(c));
    }
  }
}

TEST(HfConfig, OriginalT5TiesItsHead) {
  const T5Config c =
      parse_hf_config(R"({"model_type": "t5", "vocab_size": 128, "d_model": 16, "d_kv": 4,
    "num_heads": 4, "d_ff": 32, "num_layers": 2})",
                      "config.json")
          .value();
  EXPECT_TRUE(c.tied_head);
  EXPECT_FALSE(c.gated);
  EXPECT_EQ(c.decoder_layers, 2);
}

TEST(HfConfig, BadOnesAreRefusedWithTheReason) {
  const std::string good = kConfig;
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "not valid JSON"},
      {"[]", "expected a JSON object"},
      {replaced("\"d_model\": 64, ", ""), "\"d_model\" is missing"},
      {replaced("64", "\"64\""), "expected an integer"},
      {replaced("64", "6.5"), "expected an integer"},
      {replaced("64", "18446744073709551615"), "smaller integer"},
      {replaced("64", "0"), "d_model = 0"},
      {replaced("\"num_heads\": 3", "\"num_heads\": -3"), "num_heads = -3"},
      {replaced("gated-gelu", "gated-silu"), "gated-silu"},
      {replaced("mt5", "bart"), "bart"},
      {replaced("0.1", "1.0"), "dropout_rate"},
      {replaced("320", "1"), "vocab_size = 1"},
      {replaced("\"some_other_key\": [1, 2]", "\"relative_attention_num_buckets\": 30"),
       "multiple of 4"},
      {replaced("\"some_other_key\": [1, 2]", "\"eos_token_id\": 320"), "eos_token_id = 320"},
  };
  for (const auto& [text, says] : cases) {
    const auto result = parse_hf_config(text, "config.json");
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
    EXPECT_NE(result.error().message.find(says), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().message.find("config.json"), std::string::npos);
  }
}

Weight whole_weight(const std::string& name, Shape shape, double init_std) {
  Weight weight;
  weight.name = name;
  weight.shape = shape;
  weight.init_std = init_std;
  return weight;
}

TEST(Init, HasTheStatisticsOfTheWeight) {
  const Weight weight =
      whole_weight("encoder.block.0.layer.0.SelfAttention.q.weight", {300, 1000}, 0.25);
  std::vector<float> values(300000);
  initial_values(weight, 1, 0, values);
  double mean = 0, square = 0, fourth = 0;
  for (const float v : values) {
    const double x = static_cast<double>(v) / 0.25;
    mean += x / 300000;
    square += x * x / 300000;
    fourth += x * x * x * x / 300000;
  }
  EXPECT_NEAR(mean, 0, 0.008);
  EXPECT_NEAR(square, 1, 0.011);
  EXPECT_NEAR(fourth, 3, 0.08);
}

// Against the library's functions, one value at a time. Vector code may round the last bit of a
// double differently, and with it, once in a hundred million, a float.
TEST(Init, IsTheNormalDistributionsOfItsRandomWords) {
  const Weight weight = whole_weight("a", {1000, 1000}, 1);
  std::vector<float> values(1000000);
  initial_values(weight, 7, 0, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto words = philox(7, stream_of("a"), i / 4);
    const std::size_t pair = i % 4 / 2;
    const double u = (words[2 * pair] + 0.5) * 0x1p-32;
    const double angle = words[2 * pair + 1] * (0x1p-31 * std::numbers::pi);
    const double expected =
        std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    ASSERT_NEAR(static_cast<double>(values[i]), expected, 6e-8 * std::abs(expected) + 1e-15) << i;
  }
}

TEST(Init, DependsOnSeedNameAndIndexAlone) {
  const Weight a = whole_weight("a", {64, 37}, 1), b = whole_weight("b", {64, 37}, 1);
  const auto draw = [](const Weight& weight, std::uint64_t seed, std::int64_t first,
                       std::size_t count) {
    std::vector<float> values(count);
    initial_values(weight, seed, first, values);
    return values;
  };
  const auto whole = draw(a, 1, 0, 64 * 37);
  for (const std::int64_t first : {0, 1, 2, 3, 5, 1000}) {
    const auto part = draw(a, 1, first, 77);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
  }
  omp_set_num_threads(1);
  EXPECT_EQ(draw(a, 1, 0, 64 * 37), whole);
  omp_set_num_threads(2);
  EXPECT_NE(draw(a, 2, 0, 100), draw(a, 1, 0, 100));
  EXPECT_NE(draw(b, 1, 0, 100), draw(a, 1, 0, 100));
}

}  // namespace
}  // namespace quintet
