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
        const Tensor& t = program.tensor(tensor);
        const auto write = [&]<class T>(const auto& value_of) {
          std::vector<T> values(index(t.shape.numel()));
          for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(i);
          executor->write_all<T>(tensor, values);
        };
        const auto number = [](std::size_t i) { return static_cast<float>(i % 1000) * 0.25F + 1; };
        if (t.dtype == DType::kF32) write.template operator()<float>(number);
        if (t.dtype == DType::kBF16)
          write.template operator()<bf16>([&](std::size_t i) { return bf16(number(i)); });
        if (t.dtype == DType::kU8)
          write.template operator()<std::uint8_t>(
              [](std::size_t i) { return static_cast<std::uint8_t>(i % 251); });
      }
      for (const TensorId scales : shard.scales) {
        executor->write_all<float>(
            scales, std::vector<float>(index(program.tensor(scales).shape.numel()), 0.25F));
      }
    }
  }

  StepOptions options;
  Program program;
  std::unique_ptr<Executor> executor;
  ModelState state;
};

}  // namespace quintet
