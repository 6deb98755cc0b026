// The shape of a T5 or mT5 model: the presets, and what Hugging Face's config.json says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "program/ops/activation.h"

namespace quintet {

struct T5Config {
  std::string name;  // a preset's name, or the file it came from
  std::int64_t vocab_size = 0;
  std::int64_t d_model = 0;
  std::int64_t d_kv = 64;  // size of one head
  std::int64_t num_heads = 0;
  std::int64_t d_ff = 0;
  std::int64_t encoder_layers = 0, decoder_layers = 0;
  std::int64_t relative_buckets = 32, relative_max_distance = 128;
  double norm_epsilon = 1e-6;
  double dropout = 0;
  Nonlinearity nonlinearity = Nonlinearity::kGeluTanh;
  bool gated = true;
  bool tied_head =
      false;  // the head is the embedding, and the decoder's output is scaled by d_model^-1/2
  std::int64_t pad_id = 0, eos_id = 1, decoder_start_id = 0;
  // How it is trained, not what it computes (width.h): the width at which learning rates were
  // chosen; 0: they are not carried over. No part of config.json.
  std::int64_t base_width = 0;

  std::int64_t inner() const { return num_heads * d_kv; }
  std::int64_t parameters() const;
};

std::vector<std::string> preset_names();
Result<T5Config> preset(std::string_view name);

// Reads the architecture from Hugging Face's JSON. `origin` names it in errors.
Result<T5Config> parse_hf_config(std::string_view json, const std::string& origin);
// The reverse, for the folders we write: Hugging Face loads them as they are.
std::string to_hf_config(const T5Config& config, const char* dtype = "float32");
// Takes a preset's name, a config.json, or a folder that holds one.
Result<T5Config> load_model_config(const std::string& name_or_path);

// Refuses shapes that cannot be, saying which and why.
Status validate(const T5Config& config);

// Matrix-product operations of one sequence's forward by part of the model, by the closed formula.
// The backward takes twice as many.
struct ForwardFlops {
  double encoder_layer = 0, decoder_layer = 0, head = 0;
};
ForwardFlops forward_flops(const T5Config& config, std::int64_t source, std::int64_t target);

// The same of a whole sequence, forward and backward. A
// cross-check: the figures shown to users are summed over the program's ops.
double flops_per_sequence(const T5Config& config, std::int64_t source, std::int64_t target);

}  // namespace quintet
