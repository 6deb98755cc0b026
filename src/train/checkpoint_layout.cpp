#include "train/checkpoint_layout.h"

#include "base/index.h"
#include "base/json.h"
#include "base/safetensors.h"

namespace quintet {
namespace {

// Tensors begin where pages do, as far as their sizes allow.
constexpr std::size_t kHeaderAlignment = 4096;

// Tensors that lie in the files of one stem, in order.
class Packer {
 public:
  Packer(CheckpointLayout& layout, std::string stem, std::int64_t file_bytes)
      : layout_(layout), stem_(std::move(stem)), file_bytes_(file_bytes) {}

  void add(CheckpointLayout::Tensor tensor) {
    if (groups_.empty() || (in_group_ > 0 && in_group_ + tensor.elements * 4 > file_bytes_)) {
      groups_.emplace_back();
      in_group_ = 0;
    }
    in_group_ += tensor.elements * 4;
    groups_.back().push_back(std::move(tensor));
  }

  void finish(const std::map<std::string, std::string>& metadata) {
    Json map = Json::object();
    std::int64_t total = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      CheckpointLayout::File file;
      file.name = groups_.size() == 1
                      ? stem_ + ".safetensors"
                      : fmt::format("{}-{:05}-of-{:05}.safetensors", stem_, g + 1, groups_.size());
      std::vector<SafetensorsItem> items;
      for (const auto& tensor : groups_[g])
        items.push_back({tensor.name, DType::kF32, tensor.shape});
      file.header = safetensors_header(items, metadata, kHeaderAlignment);
      file.bytes = static_cast<std::int64_t>(file.header.size());
      for (auto& tensor : groups_[g]) {
        map[tensor.name] = file.name;
        tensor.file = static_cast<std::int32_t>(layout_.files.size());
        tensor.offset = file.bytes;
        tensor.first_block = layout_.blocks;
        layout_.blocks += tensor.blocks();
        file.bytes += tensor.elements * 4;
        total += tensor.elements * 4;
        layout_.tensors.push_back(std::move(tensor));
      }
      layout_.files.push_back(std::move(file));
    }
    if (groups_.size() > 1) {
      const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
      layout_.indices.push_back({stem_ + ".safetensors.index.json", to_text(index, 2) + "\n"});
    }
  }

 private:
  CheckpointLayout& layout_;
  const std::string stem_;
  const std::int64_t file_bytes_;
  std::vector<std::vector<CheckpointLayout::Tensor>> groups_;  // one a file
  std::int64_t in_group_ = 0;
};

}  // namespace

std::vector<StoredValue> stored_values(const std::string& optimizer, bool ema) {
  std::vector<StoredValue> values = {{"", true}, {"m", true}, {"v", true}};
  if (optimizer == "adafactor") values = {{"", true}, {"adafactor", false}};
  if (ema) values.push_back({kEmaSuffix, true});
  return values;
}

std::int64_t stored_size(const Weight& weight, const StoredValue& value) {
  if (value.per_element || weight.shape.rank() < 2) return weight.shape.numel();
  return weight.shape.rows() + weight.shape.cols();
}

CheckpointLayout checkpoint_layout(const std::vector<Weight>& weights,
                                   const std::vector<StoredValue>& values,
                                   std::int64_t file_bytes) {
  CheckpointLayout layout;
  Packer model(layout, "model", file_bytes), optimizer(layout, "optimizer", file_bytes);
  for (std::size_t w = 0; w < weights.size(); ++w) {
    for (std::size_t v = 0; v < values.size(); ++v) {
      CheckpointLayout::Tensor tensor;
      tensor.name =
          v == 0 ? weights[w].name : fmt::format("{}.{}", weights[w].name, values[v].suffix);
      tensor.weight = static_cast<std::int32_t>(w);
      tensor.value = static_cast<std::int32_t>(v);
      tensor.per_element = values[v].per_element;
      tensor.elements = stored_size(weights[w], values[v]);
      if (tensor.per_element) {
        for (int i = 0; i < weights[w].shape.rank(); ++i)
          tensor.shape.push_back(weights[w].shape[i]);
      } else {
        tensor.shape = {tensor.elements};
      }
      (v == 0 ? model : optimizer).add(std::move(tensor));
    }
  }
  model.finish({{"format", "pt"}});  // what Hugging Face wants to find
  optimizer.finish({});
  return layout;
}

std::int64_t CheckpointLayout::bytes() const {
  std::int64_t total = 0;
  for (const File& file : files) total += file.bytes;
  return total;
}

std::int64_t CheckpointLayout::data_bytes() const {
  std::int64_t total = 0;
  for (const Tensor& tensor : tensors) total += tensor.elements * 4;
  return total;
}

std::int64_t share_limit(const CheckpointLayout& layout, std::int64_t ranks) {
  const std::int64_t all = layout.data_bytes();
  return ranks == 1 ? all : std::min(all, (all + ranks - 1) / ranks + kBlockBytes);
}

}  // namespace quintet
