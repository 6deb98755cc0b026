// A model's weights inside an executor, by their names: initialising, loading, reading. Weights are
// seen as float32 here, whatever the working precision: the master copy where there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/safetensors.h"
#include "runtime/executor.h"

namespace quintet {

class ModelState {
 public:
  // The executor must outlive it.
  explicit ModelState(Executor& executor);

  void initialise(std::uint64_t seed);
  // Takes every weight from the file; refuses it when one is missing, has another shape, or when
  // the file has tensors the model does not know. Nothing is changed unless all is well.
  Status load(const Safetensors& file);
  // Writes the weights under their Hugging Face names.
  Status save(const Path& path) const;

  // Writes and reads what the optimizer keeps beside the weights, as <unit>/<kind> tensors.
  Status load_optimizer(const Safetensors& file);
  Status save_optimizer(const Path& path) const;

  std::int64_t parameters() const;

 private:
  struct UnitState {
    const Unit* unit = nullptr;
    TensorId master = kNone;          // float32; the working copy itself in fp32
    TensorId working = kNone;         // bf16, or kNone
    std::vector<TensorId> optimizer;  // moments and the like, without the master
  };
  void write(const UnitState& state, std::int64_t offset, std::span<const float> values);

  Executor& executor_;
  std::vector<UnitState> units_;
};

}  // namespace quintet
