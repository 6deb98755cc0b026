// A model's weights and optimizer state inside an executor, by the names and shapes they have in a
// checkpoint: whatever part of them this rank has. Weights are seen as float32, whatever the
// working precision: the master copy where there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/safetensors.h"
#include "model/t5_config.h"
#include "parallel/communicator.h"
#include "runtime/executor.h"

namespace quintet {

// All methods are called by all ranks of the world together.
class ModelState {
 public:
  // Executor, world and model must outlive it.
  ModelState(Executor& executor, World& world, const T5Config& model);

  void initialise(std::uint64_t seed);
  // Takes this rank's part of every weight from the file; refuses it when a weight is missing, has
  // another shape, or when the file has tensors the model does not know. Nothing is changed unless
  // all is well.
  Status load(const Safetensors& file);
  Status load_optimizer(const Safetensors& file);

  // Rank 0 writes the whole, gathered weight by weight from all ranks.
  Status save(const Path& path) const;
  Status save_optimizer(const Path& path) const;
  // One whole weight, or its gradient where the program keeps it, on rank 0; empty elsewhere.
  std::vector<float> gather_weight(const std::string& name) const;
  std::vector<float> gather_gradient(const std::string& name) const;

  // The whole model's, in checkpoint order.
  const std::vector<Weight>& weights() const { return weights_; }
  std::int64_t parameters() const { return model_.parameters(); }

 private:
  // A kind of value that exists for each element of a weight or for its rows and columns.
  struct StateKind {
    std::string suffix;       // "<weight>.m"
    bool per_element = true;  // else: row means, then column means, or all values of a vector
  };
  std::vector<StateKind> state_kinds() const;
  // How float32 values are stored: rounded to the tensor's type, or one half of a split float32.
  enum class Part { kRounded, kHigh, kLow };
  template <class Source>
  void fill(TensorId tensor, const std::vector<ShardPiece>& pieces, Part part,
            const Source& source);
  template <class Source>
  void fill_weights(const Source& source);
  Status save_values(const Path& path, bool optimizer) const;
  // Reads elements of a shard, from one on.
  using Reader = std::function<void(const Shard&, std::int64_t, std::span<float>)>;
  Reader reader_of(const std::function<TensorId(const Shard&)>& tensor) const;
  std::vector<float> gather_elements(const std::string& name, const Reader& read) const;
  std::vector<float> gather_adafactor(const Weight& whole) const;

  Executor& executor_;
  World& world_;
  const T5Config& model_;
  std::vector<Weight> weights_;
};

}  // namespace quintet
