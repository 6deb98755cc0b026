// Weights of a trained model in a folder as Hugging Face keeps them (and as our checkpoints and
// `quintet export` do): config.json, and one safetensors file or several with an index.
#pragma once

#include "base/files.h"
#include "base/result.h"
#include "base/tensor_files.h"
#include "model/t5_config.h"

namespace quintet {

// Opens a folder's weights, under the names that this model has for them: where the one embedding
// is stored under the names of its users, too or instead (`encoder.embed_tokens.weight`; a tied
// `lm_head.weight`), it is `shared.weight`. Refused: the configuration of another model, files that
// are missing, truncated or unsound. Whether all weights are there is for who reads them to ask.
//
// `compare_copies`: read all copies of the embedding, and refuse those that are not equal.
Result<TensorFiles> open_pretrained(const Path& folder, const T5Config& model, bool compare_copies);

// Whether a folder has such weights, sound or not.
bool has_weights(const Path& folder);

// What makes two models different ones, for people: "d_ff is 128, not 256; ..."; nothing where they
// are one. What only training looks at (dropout) does not count.
std::string architecture_differences(const T5Config& found, const T5Config& wanted);

}  // namespace quintet
