// Weight decay by name: after one step, from the same gradients, every weight has the bits it has
// in a run that decays all weights as much as the table says for it.
#include <gtest/gtest.h>

#include "base/safetensors.h"
#include "tests/support/temporary_folder.h"
#include "train/model_state.h"
#include "train/trainer.h"

namespace quintet {
namespace {

class DecayTableTraining
    : public ::testing::TestWithParam<std::tuple<const char*, const char*, double>> {};

TEST_P(DecayTableTraining, EachWeightDecaysAsItsEntrySays) {
  const TemporaryFolder folder;
  const auto [optimizer, precision, offload] = GetParam();
  const auto run = [&, o = optimizer, p = precision, f = offload](const char* name, double decay,
                                                                  std::vector<std::string> table) {
    RunConfig config;
    config.batch.micro_batch = 2;
    config.batch.source = 24;
    config.train.threads = 1;
    config.train.steps = 1;
    config.train.precision = p;
    config.optimizer.name = o;
    config.optimizer.offload = f;
    config.optimizer.weight_decay = decay;
    config.optimizer.decay_table = std::move(table);
    config.schedule.kind = "constant";
    config.schedule.warmup_steps = 0;
    config.schedule.peak = 0.1;
    config.output.folder = (folder.path() / name).string();
    config.output.log_every = 1000;
    const auto result = train(config, *make_single_world());
    EXPECT_TRUE(result.ok()) << result.error().message;
    return Safetensors::open(folder.path() / name / "checkpoints/step-00000001/model.safetensors")
        .value();
  };
  Safetensors none = run("none", 0, {}), some = run("some", 0.25, {}), most = run("most", 0.5, {});
  Safetensors table = run("table", 0.25, {"*layer_norm*=0", "*.k.weight=0.5", "shared.*=0.5"});
  int kept = 0, strong = 0;
  for (const Weight& weight : whole_weights(load_model_config("tiny").value())) {
    const auto of = [&, &w = weight](Safetensors& file) {
      std::vector<std::int64_t> shape;
      for (int dim = 0; dim < w.shape.rank(); ++dim) shape.push_back(w.shape[dim]);
      return file.read_float(w.name, shape).value();
    };
    const bool norm = weight.name.find("layer_norm") != std::string::npos;
    const bool much = weight.name.ends_with(".k.weight") || weight.name == "shared.weight";
    kept += norm;
    strong += much;
    EXPECT_EQ(of(table), of(norm ? none : much ? most : some)) << weight.name;
    EXPECT_NE(of(none), of(some)) << weight.name;
  }
  EXPECT_EQ(kept, 12);
  EXPECT_EQ(strong, 7);
}
INSTANTIATE_TEST_SUITE_P(All, DecayTableTraining,
                         ::testing::Values(std::tuple{"adamw", "fp32", 0.0},
                                           std::tuple{"adamw", "bf16", 1.0},
                                           std::tuple{"adafactor", "fp32", 0.0}));

TEST(DecayTableTraining, RefusesAPatternWithoutAWeight) {
  RunConfig config;
  config.optimizer.decay_table = {"*layer_norms*=0"};
  const auto refused = step_options(config, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("*layer_norms*"), std::string::npos);
  config.optimizer.decay_table = {"*layer_norm*"};
  EXPECT_FALSE(step_options(config, 1).ok());
}

}  // namespace
}  // namespace quintet
