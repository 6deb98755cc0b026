// Where everything lies in a checkpoint: which tensor in which file, at which byte. A function of
// the model and the optimizer alone, so that all ranks know it without asking, whatever the layout
// of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace quintet {

// A kind of value that a checkpoint has of each weight: the weight itself, then the optimizer's
// state.
struct StoredValue {
  std::string suffix;       // "<weight>.m"; empty: the weight itself
  bool per_element = true;  // else: row means then column means of a matrix, all values of a vector
};
// Of an optimizer by its name in the configuration; `ema`: with a running mean of the weights,
// which comes last.
std::vector<StoredValue> stored_values(const std::string& optimizer, bool ema);
inline constexpr const char* kEmaSuffix = "ema";

// Checksums, exchange and writing go by blocks: this many bytes of a tensor, the last one fewer.
inline constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;
// Files are cut after the tensor with which they reach this size: several files are written and
// read in parallel where one would be a bottleneck.
inline constexpr std::int64_t kCheckpointFileBytes = std::int64_t{1} << 30;

struct CheckpointLayout {
  struct File {
    std::string name;
    std::string header;  // all before the tensors' bytes
    std::int64_t bytes = 0;
  };
  struct Tensor {
    std::string name;
    std::int32_t weight = 0, value = 0;  // of weights(), of stored_values()
    bool per_element = true;
    std::vector<std::int64_t> shape;
    std::int64_t elements = 0;  // float32
    std::int32_t file = 0;
    std::int64_t offset = 0;       // bytes into the file
    std::int64_t first_block = 0;  // the blocks of all tensors are numbered through
    std::int64_t blocks() const { return (elements * 4 + kBlockBytes - 1) / kBlockBytes; }
  };
  struct IndexFile {
    std::string name, text;
  };
  std::vector<File> files;
  std::vector<Tensor> tensors;
  std::vector<IndexFile> indices;  // of files that were cut, as Hugging Face has them
  std::int64_t blocks = 0;

  std::int64_t bytes() const;  // of all files
  std::int64_t data_bytes() const;
};

// Weights: the whole model's.
CheckpointLayout checkpoint_layout(const std::vector<Weight>& weights,
                                   const std::vector<StoredValue>& values,
                                   std::int64_t file_bytes = kCheckpointFileBytes);

// What no rank's part of a checkpoint exceeds when `ranks` share it out.
std::int64_t share_limit(const CheckpointLayout& layout, std::int64_t ranks);

// How many values of this kind a weight has.
std::int64_t stored_size(const Weight& weight, const StoredValue& value);

}  // namespace quintet
