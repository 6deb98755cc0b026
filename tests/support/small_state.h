// A small model's state in an executor, as a rank of some layout has it, without training.
#pragma once

#include <memory>

#include "base/check.h"
#include "base/index.h"
#include "train/model_state.h"
#include "train/run_config.h"
#include "train/step_program.h"

namespace quintet {

struct SmallState {
  SmallState(const RunConfig& config, World& world)
      : options(step_options(config, world.size()).value()),
        program(compile_step(options, world.rank())),
        executor(make_cpu_executor(program, world).value()),
        state(*executor, world, options.model) {
    state.initialise(static_cast<std::uint64_t>(config.train.seed));
  }
  // Makes every moment of the optimizer a number of its own; the same under all layouts.
  void fill_moments() {
    for (const Shard& shard : program.shards) {
      for (const TensorId tensor : shard.state) {
        std::vector<float> values(index(program.tensor(tensor).shape.numel()));
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<float>(i % 1000) * 0.25F + 1;
        executor->write_all<float>(tensor, values);
      }
    }
  }

  StepOptions options;
  Program program;
  std::unique_ptr<Executor> executor;
  ModelState state;
};

}  // namespace quintet
