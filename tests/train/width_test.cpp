// model.base_width: what a weight starts from and how fast it learns follow the model's width as
// the rules say, nothing else changes, and activations then move as much at any width.
#include "model/width.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "base/philox.h"
#include "base/safetensors.h"
#include "passes/finish.h"
#include "passes/memory_plan.h"
#include "program/printer.h"
#include "runtime/backend.h"
#include "tests/support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/export.h"
#include "train/feed.h"
#include "train/model_state.h"
#include "train/trainer.h"

namespace quintet {
namespace {

// A tiny model widened the way the rules assume: more heads of the same size, d_ff along.
T5Config wide_model(std::int64_t width, std::int64_t base, bool tied = false) {
  T5Config model = preset("tiny").value();
  model.vocab_size = 96;
  model.d_model = width;
  model.num_heads = width / model.d_kv;
  model.d_ff = 2 * width;
  model.tied_head = tied;
  model.base_width = base;
  return model;
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const char* end) { return name.ends_with(end); });
}
bool is_hidden(const std::string& name) {
  return is_one_of(name, {".q.weight", ".k.weight", ".v.weight", ".o.weight", ".wi.weight",
                          ".wi_0.weight", ".wi_1.weight", ".wo.weight"});
}
bool is_output(const std::string& name) {
  return name == "lm_head.weight" || name == "decoder.final_layer_norm.weight";
}

TEST(Width, EachWeightFollowsItsRule) {
  for (const bool tied : {false, true}) {
    const auto narrow = whole_weights(wide_model(64, 0, tied));
    const auto wide = whole_weights(wide_model(256, 64, tied));  // m = 4
    ASSERT_EQ(narrow.size(), wide.size());
    std::map<double, int> rates;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const Weight &from = narrow[i], &to = wide[i];
      ASSERT_EQ(from.name, to.name);
      const bool hidden = is_hidden(to.name), output = is_output(to.name);
      EXPECT_DOUBLE_EQ(to.rate_scale, hidden ? 0.25 : output ? 0.5 : 1) << to.name;
      const double size =
          to.init_std == 0 ? to.init_value / from.init_value : to.init_std / from.init_std;
      EXPECT_DOUBLE_EQ(size, hidden || output ? 0.5 : 1) << to.name;
      EXPECT_DOUBLE_EQ(to.relative_size, size) << to.name;
      EXPECT_EQ(from.rate_scale, 1) << to.name;
      EXPECT_EQ(from.relative_size, 1) << to.name;
      EXPECT_EQ(to.init_std == 0, to.shape.rank() == 1) << to.name;
      ++rates[to.rate_scale];
    }
    // 2 encoder layers of 4 + 3 matrices, 2 decoder layers of 8 + 3.
    EXPECT_EQ(rates[0.25], 36);
    EXPECT_EQ(rates[0.5], tied ? 1 : 2);
  }
}

TEST(Width, AtTheBaseWidthNothingChanges) {
  for (const char* optimizer : {"adamw", "adafactor"}) {
    for (const bool tied : {false, true}) {
      StepOptions options;
      options.model = wide_model(64, 0, tied);
      options.batch = {2, 9, 5, true};
      options.optimizer.name = optimizer;
      options.optimizer.weight_decay = 0.1;
      options.optimizer.decay_table = {"*layer_norm*=0"};
      options.target.threads = 1;
      const Program off = compile_step(options);
      options.model.base_width = 64;
      const Program same = compile_step(options);
      EXPECT_EQ(to_string(off), to_string(same));
      options.model.base_width = 32;
      EXPECT_EQ(to_string(off) == to_string(compile_step(options)),
                std::string(optimizer) == "adafactor");  // whose ops do not print their weights
      for (std::size_t u = 0; u < off.units.size(); ++u) {
        for (std::size_t w = 0; w < off.units[u].weights.size(); ++w) {
          const Weight &a = off.units[u].weights[w], &b = same.units[u].weights[w];
          EXPECT_EQ(a.init_std, b.init_std);
          EXPECT_EQ(a.init_value, b.init_value);
          EXPECT_EQ(b.rate_scale, 1);
        }
      }
      for (const Op& op : same.ops) {
        if (op.kind == OpKind::kAdamW) {
          EXPECT_EQ(std::get<AdamWAttrs>(op.attrs).rate_scale, 1);
        }
        if (op.kind != OpKind::kAdafactorApply) continue;
        for (const AdafactorSegment& s : std::get<AdafactorAttrs>(op.attrs).segments)
          EXPECT_EQ(s.rate_scale, 1);
      }
    }
  }
}

RunConfig width_run(const Path& folder, std::int64_t base_width) {
  RunConfig config;
  config.batch.micro_batch = 2;
  config.batch.source = 24;
  config.train.threads = 1;
  config.train.steps = 1;
  config.model.base_width = base_width;
  config.schedule.kind = "constant";
  config.schedule.warmup_steps = 0;
  config.schedule.peak = 0.1;
  config.output.folder = folder.string();
  config.output.log_every = 1000;
  config.validate.batches = 2;
  return config;
}

void expect_trained(const RunConfig& config) {
  const auto result = train(config, *make_single_world());
  ASSERT_TRUE(result.ok()) << result.error().message;
}

std::vector<float> weight_in(const Path& folder, const Weight& weight) {
  std::vector<std::int64_t> shape;
  for (int dim = 0; dim < weight.shape.rank(); ++dim) shape.push_back(weight.shape[dim]);
  Safetensors file = Safetensors::open(folder / "model.safetensors").value();
  return file.read_float(weight.name, shape).value();
}

struct UpdateCase {
  const char* optimizer;
  bool scale_parameter;
  const char* precision;
  double offload;
};
class WidthUpdate : public ::testing::TestWithParam<UpdateCase> {};

// From the same weights and gradients, a step with a base width is the step without one, times each
// weight's factor; decay is what it is at the base width.
TEST_P(WidthUpdate, IsTheStepTimesTheWeightsFactor) {
  const UpdateCase& c = GetParam();
  const TemporaryFolder folder;
  const Path start = folder.path() / "start";
  RunConfig still = width_run(start, 0);
  still.schedule.peak = 0;
  expect_trained(still);
  const auto run = [&](const char* name, std::int64_t base_width, double decay) {
    RunConfig config = width_run(folder.path() / name, base_width);
    config.model.name = "tiny";
    config.model.weights = checkpoint_at(start, 1).folder.string();
    config.train.precision = c.precision;
    config.optimizer.name = c.optimizer;
    config.optimizer.scale_parameter = c.scale_parameter;
    config.optimizer.offload = c.offload;
    config.optimizer.weight_decay = decay;
    expect_trained(config);
    return checkpoint_at(folder.path() / name, 1).folder;
  };
  const Path before = checkpoint_at(start, 1).folder, plain = run("plain", 0, 0);
  const Path scaled = run("scaled", 16, 0.25);  // m = 4
  const bool relative = std::string(c.optimizer) == "adafactor" && c.scale_parameter;
  for (const Weight& weight : whole_weights(preset("tiny").value())) {
    const bool hidden = is_hidden(weight.name), output = is_output(weight.name);
    const double size = hidden || output ? 0.5 : 1;
    const double rate = (hidden ? 0.25 : output ? 0.5 : 1) / (relative ? size : 1);
    const auto w0 = weight_in(before, weight), w1 = weight_in(plain, weight),
               got = weight_in(scaled, weight);
    double square = 0;
    for (const float w : w0) square += static_cast<double>(w) * static_cast<double>(w);
    const double rms = std::sqrt(square / static_cast<double>(w0.size()));
    // At the base width a relative decay would be that of a weight 1 / size times as large.
    const double decay = 0.1 * 0.25 * (relative ? rms / size : 1);
    double largest = 0;
    for (std::size_t i = 0; i < w0.size(); ++i) {
      const auto w = static_cast<double>(w0[i]);
      const double change = static_cast<double>(w1[i]) - w;
      largest = std::max(largest, std::abs(change));
      ASSERT_NEAR(static_cast<double>(got[i]), w * (1 - decay) + rate * change,
                  2e-6 * (std::abs(w) + std::abs(change)))
          << weight.name << " " << i;
    }
    EXPECT_GT(largest, 1e-3) << weight.name;
  }
}
INSTANTIATE_TEST_SUITE_P(All, WidthUpdate,
                         ::testing::Values(UpdateCase{"adamw", true, "fp32", 0},
                                           UpdateCase{"adamw", true, "bf16", 1},
                                           UpdateCase{"adafactor", true, "fp32", 0},
                                           UpdateCase{"adafactor", true, "bf16", 1},
                                           UpdateCase{"adafactor", false, "fp32", 0}));

// The forward has no part in it: checkpoints and exports are those of any T5, and give the same
// loss with and without the base width they were trained with.
TEST(Width, ATrainedModelIsAT5LikeAnyOther) {
  const TemporaryFolder folder;
  for (const bool tied : {false, true}) {
    const std::string kind = tied ? "tied" : "untied";
    T5Config shape = wide_model(64, 0, tied);
    shape.vocab_size = 512;
    const Path model = folder.path() / (kind + ".json");
    std::ofstream(model.string()) << to_hf_config(shape);
    RunConfig config = width_run(folder.path() / kind, 16);
    config.model.name = model.string();
    config.schedule.peak = 0.01;
    config.train.steps = 3;
    expect_trained(config);
    const Path checkpoint = checkpoint_at(folder.path() / kind, 3).folder;
    EXPECT_EQ(read_file(checkpoint / "config.json").value(), to_hf_config(shape));
    ExportOptions options;
    options.checkpoint = checkpoint;
    options.output = folder.path() / (kind + "-exported");
    const auto exported = export_model(options);
    ASSERT_TRUE(exported.ok()) << exported.error().message;
    EXPECT_EQ(read_file(options.output / "config.json").value(), to_hf_config(shape));
    for (const Weight& weight : whole_weights(shape))
      EXPECT_EQ(weight_in(options.output, weight), weight_in(checkpoint, weight)) << weight.name;
    const auto loss_with = [&](std::int64_t base_width, const Path& weights) {
      const Path run = folder.path() / fmt::format("{}-{}-{}", kind, base_width,
                                                   weights == checkpoint ? "own" : "exported");
      RunConfig again = width_run(run, base_width);
      again.model.name = again.model.weights = weights.string();
      again.schedule.peak = 0;
      const auto result = train(again, *make_single_world());
      EXPECT_TRUE(result.ok()) << result.error().message;
      return result.value().final_loss;
    };
    const double loss = loss_with(16, checkpoint);
    EXPECT_EQ(loss_with(0, checkpoint), loss);
    EXPECT_EQ(loss_with(0, options.output), loss);
    EXPECT_EQ(loss_with(16, options.output), loss);
  }
}

// --- Activations
// ---------------------------------------------------------------------------------

Batch random_batch(std::uint64_t seed, const StepOptions& options) {
  PhiloxSequence random(seed, 7);
  Batch batch;
  batch.resize(options.batch.micro_batch, options.batch.source, options.batch.target);
  const auto words = static_cast<std::uint32_t>(options.model.vocab_size);
  for (std::int32_t& id : batch.source) id = static_cast<std::int32_t>(random.below(words));
  for (std::int32_t& id : batch.labels) id = static_cast<std::int32_t>(random.below(words));
  shift_right(batch.labels, options.batch.target, 0, 0, batch.target);
  return batch;
}

StepOptions width_step(const T5Config& model) {
  StepOptions options;
  options.model = model;
  options.batch = {1, 8, 4, false};
  options.target.threads = 1;
  return options;
}

using Activations = std::map<std::string, std::vector<float>>;

// Some values of the forward with the weights that a training has now, and what makes the logits.
Activations forward_with(const ModelState& state, const StepOptions& options, const Batch& batch) {
  ModelOptions forward = options.options;
  forward.gradients = false;
  Program program = emit_t5(options.model, options.batch, forward, Place{}, {0},
                            cut_into_stages(options.model, 8, 4, 1).value());
  const std::vector<std::string> names = {"encoder.embedded", "encoder.0.qkv", "encoder.0.ff_out",
                                          "decoder.0.ff_out", "decoder.out"};
  for (const std::string& name : names) program.results.push_back(program.find(name));
  drop_first_addends(program);
  insert_waits(program);
  remove_unused_tensors(program);
  plan_memory(program, *make_backend(options.target));
  const auto world = make_single_world();
  const auto executor = make_cpu_executor(program, *world).value();
  for (const Unit& unit : program.units) {
    for (const Weight& weight : unit.weights) {
      const std::vector<float> values = state.gather_weight(weight.name);
      executor->write(unit.params, weight.offset * 4, std::as_bytes(std::span(values)));
    }
  }
  EXPECT_TRUE(feed(*executor, 0, batch, options).ok());
  EXPECT_TRUE(run_step(*executor, 1, 0).ok());
  Activations values;
  for (std::size_t i = 0; i < names.size(); ++i)
    values[names[i]] = executor->read_all<float>(program.results[i]);
  values["norm"] = state.gather_weight("decoder.final_layer_norm.weight");
  values["head"] =
      state.gather_weight(options.model.tied_head ? "shared.weight" : "lm_head.weight");
  return values;
}

// The labels' logits above the mean of all, which is what learning moves. (All logits have noise
// that falls with the width.)
std::vector<float> label_logits(const std::vector<float>& out, const std::vector<float>& head,
                                const StepOptions& options, const Batch& batch) {
  const auto d = static_cast<std::size_t>(options.model.d_model);
  const double scale = options.model.tied_head ? 1 / std::sqrt(static_cast<double>(d)) : 1;
  const auto words = static_cast<double>(options.model.vocab_size);
  std::vector<float> values;
  for (std::size_t row = 0; row < out.size() / d; ++row) {
    double above = 0;
    for (std::size_t word = 0; word < head.size() / d; ++word) {
      double logit = 0;
      for (std::size_t i = 0; i < d; ++i)
        logit += static_cast<double>(out[row * d + i]) * static_cast<double>(head[word * d + i]);
      const bool label = batch.labels[row] == static_cast<std::int32_t>(word);
      above += scale * logit * ((label ? 1 : 0) - 1 / words);
    }
    values.push_back(static_cast<float>(above));
  }
  return values;
}

// Root mean squares of what some steps changed in the activations.
std::map<std::string, double> movement(const StepOptions& options, double rate,
                                       std::uint64_t seed) {
  const Program program = compile_step(options);
  const auto world = make_single_world();
  const auto executor = make_cpu_executor(program, *world).value();
  ModelState state(*executor, *world, options.model);
  state.initialise(seed);
  const Batch batch = random_batch(seed, options);
  const Activations before = forward_with(state, options, batch);
  for (std::int64_t step = 1; step <= 3; ++step) {
    EXPECT_TRUE(feed(*executor, 0, batch, options).ok());
    EXPECT_TRUE(run_step(*executor, step, rate).ok());
  }
  const Activations after = forward_with(state, options, batch);
  std::map<std::string, double> moved;
  const auto note = [&](const std::string& name, const std::vector<float>& old,
                        const std::vector<float>& now) {
    double square = 0;
    for (std::size_t i = 0; i < now.size(); ++i)
      square += std::pow(static_cast<double>(now[i]) - static_cast<double>(old[i]), 2);
    moved[name] = std::sqrt(square / static_cast<double>(now.size()));
  };
  for (const char* name :
       {"encoder.embedded", "encoder.0.qkv", "encoder.0.ff_out", "decoder.0.ff_out"})
    note(name, before.at(name), after.at(name));
  // By everything; and by the head and by the last norm alone, which have rates of their own.
  const auto labels = [&](const std::vector<float>& out, const std::vector<float>& head) {
    return label_logits(out, head, options, batch);
  };
  const std::vector<float>&out = before.at("decoder.out"), &head = before.at("head");
  std::vector<float> scaled = out;
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const std::size_t column = i % before.at("norm").size();
    scaled[i] *= after.at("norm")[column] / before.at("norm")[column];
  }
  const std::vector<float> start = labels(out, head);
  note("labels", start, labels(after.at("decoder.out"), after.at("head")));
  note("labels by the head", start, labels(out, after.at("head")));
  note("labels by the last norm", start, labels(scaled, head));
  return moved;
}

struct CoordinateCase {
  const char* name;
  const char* optimizer;
  bool scale_parameter, tied;
  double rate;
};
class CoordinateCheck : public ::testing::TestWithParam<CoordinateCase> {};

// log2 of the movement against log2 of the width: its slope, over widths 64 to 512, by activation.
std::map<std::string, double> slopes(const CoordinateCase& c, std::int64_t base_width) {
  std::map<std::string, double> slope;
  constexpr int kSeeds = 2;
  for (const std::int64_t width : {64, 128, 256, 512}) {
    StepOptions options = width_step(wide_model(width, base_width, c.tied));
    options.model.encoder_layers = options.model.decoder_layers = 1;
    options.optimizer.name = c.optimizer;
    options.optimizer.scale_parameter = c.scale_parameter;
    const double x = std::log2(static_cast<double>(width)) - 7.5;  // sum of squares: 5
    for (int seed = 1; seed <= kSeeds; ++seed) {
      for (const auto& [name, value] : movement(options, c.rate, static_cast<std::uint64_t>(seed)))
        slope[name] += x * std::log2(value) / 5 / kSeeds;
    }
  }
  return slope;
}

TEST_P(CoordinateCheck, ActivationsMoveAsMuchAtAnyWidth) {
  const auto with = slopes(GetParam(), 64), without = slopes(GetParam(), 0);
  for (const auto& [name, slope] : with) {
    EXPECT_NEAR(slope, 0, 0.08) << name;
    if (name != "encoder.embedded") {  // moves as much without
      EXPECT_GT(without.at(name), 0.12) << name;
    }
  }
  EXPECT_EQ(with.size(), 7U);
}
INSTANTIATE_TEST_SUITE_P(
    All, CoordinateCheck,
    ::testing::Values(CoordinateCase{"adamw", "adamw", true, false, 1e-3},
                      CoordinateCase{"adamw_tied", "adamw", true, true, 1e-3},
                      CoordinateCase{"adafactor", "adafactor", true, false, 3e-3},
                      CoordinateCase{"adafactor_unscaled", "adafactor", false, false, 1e-3}),
    [](const auto& info) { return std::string(info.param.name); });

// The gradients are those of the loss, whatever the weights start from.
TEST(Width, GradientsAgreeWithFiniteDifferences) {
  for (const bool tied : {false, true}) {
    StepOptions options = width_step(wide_model(64, 16, tied));
    options.update = false;
    options.options.z_loss = 1e-3;
    const Program program = compile_step(options);
    const auto world = make_single_world();
    const auto executor = make_cpu_executor(program, *world).value();
    ModelState state(*executor, *world, options.model);
    state.initialise(3);
    EXPECT_TRUE(feed(*executor, 0, random_batch(5, options), options).ok());
    const auto loss = [&] {
      const StepResult result = run_step(*executor, 1, 0).value();
      return result.loss + result.z_loss;
    };
    loss();
    // Along a direction that has a part in every weight.
    std::map<std::string, std::vector<float>> start, direction;
    for (const Unit& unit : program.units) {
      for (const Weight& weight : unit.weights) {
        auto& values = start[weight.name];
        values.resize(static_cast<std::size_t>(weight.size()));
        executor->read(unit.params, weight.offset * 4, std::as_writable_bytes(std::span(values)));
      }
    }
    double slope = 0;
    for (const Weight& weight : state.weights()) {
      const auto& values = start.at(weight.name);
      const auto gradient = state.gather_gradient(weight.name);
      PhiloxSequence random(11, stream_of(weight.name));
      const double size = weight.init_std == 0 ? 0.1 * weight.init_value : weight.init_std;
      auto& along = direction[weight.name];
      for (std::size_t i = 0; i < values.size(); ++i) {
        along.push_back(static_cast<float>(size * (2 * random.uniform() - 1)));
        slope += static_cast<double>(along[i]) * static_cast<double>(gradient[i]);
      }
    }
    const auto loss_at = [&](float step) {
      for (const Unit& unit : program.units) {
        for (const Weight& weight : unit.weights) {
          std::vector<float> values = start[weight.name];
          for (std::size_t i = 0; i < values.size(); ++i)
            values[i] += step * direction[weight.name][i];
          executor->write(unit.params, weight.offset * 4, std::as_bytes(std::span(values)));
        }
      }
      return loss();
    };
    constexpr float kStep = 4e-3f;
    const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * static_cast<double>(kStep));
    EXPECT_GT(std::abs(slope), 1e-3);
    EXPECT_NEAR(difference, slope, 1e-2 * std::abs(slope)) << tied;
  }
}

}  // namespace
}  // namespace quintet
