// A model's weights and optimizer state inside an executor, by the names and shapes they have in a
// checkpoint: whatever part of them this rank has. Weights are seen as float32, whatever the
// working precision: the master copy where there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor_files.h"
#include "model/t5_config.h"
#include "parallel/communicator.h"
#include "runtime/executor.h"
#include "train/checkpoint_layout.h"
#include "train/checkpoint_shares.h"

namespace quintet {

// All methods are called by all ranks of the world together.
class ModelState {
 public:
  // Executor, world and model must outlive it.
  ModelState(Executor& executor, World& world, const T5Config& model);

  void initialise(std::uint64_t seed);
  // Whether files hold exactly this model's weights, or this optimizer's state of them; names what
  // is missing, misshapen or too much.
  Status check(const TensorFiles& files) const;
  Status check_optimizer(const TensorFiles& files) const;
  // Takes this rank's part of every weight from files, reading no more than it needs. Nothing is
  // changed if they do not fit; a file that cannot be read leaves a part of the weights changed.
  Status load(TensorFiles& files);
  Status load_optimizer(TensorFiles& files);

  // What this rank has, in pieces; and elements of a piece's part, of one of values(), as float32.
  const std::vector<HeldPiece>& pieces() const { return pieces_; }
  void read(std::int32_t piece, std::int32_t value, std::int64_t at, std::span<float> values) const;
  // The kinds of value that a checkpoint has of each weight.
  const std::vector<StoredValue>& values() const { return values_; }

  // One whole weight, or its gradient where the program keeps it, on rank 0; empty elsewhere.
  std::vector<float> gather_weight(const std::string& name) const;
  std::vector<float> gather_gradient(const std::string& name) const;
  // Its running mean where one is kept (optimizer.ema).
  std::vector<float> gather_mean(const std::string& name) const;

  // The whole model's, in checkpoint order.
  const std::vector<Weight>& weights() const { return weights_; }
  std::int64_t parameters() const { return model_.parameters(); }

 private:
  // How float32 values are stored: rounded to the tensor's type, or one half of a split float32.
  enum class Part { kRounded, kHigh, kLow };
  template <class Source>
  Status fill(TensorId tensor, const std::vector<ShardPiece>& pieces, Part part,
              const Source& source);
  template <class Source>
  Status fill_weights(const Source& source);
  // State k of a shard, which is kept in codes of eight bits.
  template <class Source>
  Status fill_codes(const Shard& shard, std::size_t k, const Source& source);
  std::vector<TensorFiles::Wanted> wanted(bool optimizer) const;
  void list_pieces();
  // Elements of a shard's tensor, from one on, as float32.
  void read(const Shard& shard, TensorId tensor, std::int64_t first, std::span<float> values) const;
  void read_codes(const Shard& shard, std::size_t k, std::int64_t first,
                  std::span<float> values) const;
  std::vector<float> gather_elements(const std::string& name,
                                     const std::function<TensorId(const Shard&)>& tensor) const;

  Executor& executor_;
  World& world_;
  const T5Config& model_;
  std::vector<Weight> weights_;
  std::vector<StoredValue> values_;
  std::vector<HeldPiece> pieces_;
  // Where a piece's first element is: a shard, and how far into its tensors.
  struct Where {
    std::size_t shard = 0;
    std::int64_t offset = 0;
  };
  std::vector<Where> where_;
};

// The whole model's weights: what a rank alone would have.
std::vector<Weight> whole_weights(const T5Config& model);

}  // namespace quintet
