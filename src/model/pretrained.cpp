#include "model/pretrained.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/index.h"
#include "base/text.h"

namespace quintet {
namespace {

constexpr const char* kEmbedding = "shared.weight";
// A table that the first T5 checkpoints have and that no code ever used.
constexpr const char* kUnused =
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";

const char* feed_forward_name(const T5Config& model) {
  return model.gated ? "gated-gelu" : "relu";
}

// Whether two tensors have the same values, bit by bit as float32.
Result<bool> same_values(TensorFiles& files, const std::string& a, const std::string& b) {
  if (files.tensors().at(a).shape != files.tensors().at(b).shape) return false;
  std::int64_t elements = 1;
  for (const std::int64_t dim : files.tensors().at(a).shape) elements *= dim;
  constexpr std::int64_t kPiece = 1 << 20;
  std::vector<float> left, right;
  for (std::int64_t first = 0; first < elements; first += kPiece) {
    left.resize(index(std::min(kPiece, elements - first)));
    right.resize(left.size());
    QT_TRY(files.read(a, first, left));
    QT_TRY(files.read(b, first, right));
    if (std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

Status name_the_embedding(TensorFiles& files, bool tied_head, bool compare_copies) {
  std::vector<std::string> names = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
  if (tied_head) names.emplace_back("lm_head.weight");
  for (const std::string& name : names) {
    if (!files.tensors().contains(name)) continue;
    if (!files.tensors().contains(kEmbedding)) {
      files.rename(name, kEmbedding);
      continue;
    }
    if (compare_copies) {
      for (const std::string& one : {name, std::string(kEmbedding)})
        QT_TRY(files.check_readable(one));
      QT_ASSIGN(const bool same, same_values(files, name, kEmbedding));
      if (!same) {
        return bad_input(
            "{}: \"{}\" and \"{}\" differ; here they are one weight, so this model cannot be used",
            files.folder().string(), name, kEmbedding);
      }
    }
    files.leave_out(name);
  }
  return {};
}

}  // namespace

std::string architecture_differences(const T5Config& found, const T5Config& wanted) {
  std::vector<std::string> all;
  const auto compare = [&](const char* key, const auto& is, const auto& should) {
    if (is != should) all.push_back(fmt::format("{} is {}, not {}", key, is, should));
  };
  compare("vocab_size", found.vocab_size, wanted.vocab_size);
  compare("d_model", found.d_model, wanted.d_model);
  compare("d_kv", found.d_kv, wanted.d_kv);
  compare("num_heads", found.num_heads, wanted.num_heads);
  compare("d_ff", found.d_ff, wanted.d_ff);
  compare("num_layers", found.encoder_layers, wanted.encoder_layers);
  compare("num_decoder_layers", found.decoder_layers, wanted.decoder_layers);
  compare("feed_forward_proj", std::string(feed_forward_name(found)),
          std::string(feed_forward_name(wanted)));
  compare("tie_word_embeddings", found.tied_head, wanted.tied_head);
  compare("relative_attention_num_buckets", found.relative_buckets, wanted.relative_buckets);
  compare("relative_attention_max_distance", found.relative_max_distance,
          wanted.relative_max_distance);
  compare("layer_norm_epsilon", found.norm_epsilon, wanted.norm_epsilon);
  return join(all, "; ");
}

bool has_weights(const Path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "model.safetensors", ignored) ||
         std::filesystem::exists(folder / "model.safetensors.index.json", ignored);
}

Result<TensorFiles> open_pretrained(const Path& folder, const T5Config& model,
                                    bool compare_copies) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    return bad_input("{}: no such folder", folder.string());
  if (const Path path = folder / "config.json"; std::filesystem::exists(path, ignored)) {
    QT_ASSIGN(const T5Config found, load_model_config(path.string()));
    if (const std::string differences = architecture_differences(found, model);
        !differences.empty()) {
      return bad_input("{}: of another model than {}: {}", path.string(), model.name, differences);
    }
  }
  if (!has_weights(folder)) {
    const bool pickled = std::filesystem::exists(folder / "pytorch_model.bin", ignored) ||
                         std::filesystem::exists(folder / "pytorch_model.bin.index.json", ignored);
    return bad_input("{}: has neither model.safetensors nor model.safetensors.index.json{}",
                     folder.string(),
                     pickled ? "; pytorch_model.bin cannot be read: load it with transformers and "
                               "save it again (save_pretrained)"
                             : "");
  }
  QT_ASSIGN(TensorFiles files, TensorFiles::open(folder, "model"));
  QT_TRY(name_the_embedding(files, model.tied_head, compare_copies));
  files.leave_out(kUnused);
  return files;
}

}  // namespace quintet
