// Unigram models as Hugging Face keeps them: `tokenizer.json`. Read as the SentencePiece model that
// such files are converted from; what cannot have come from one is refused.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "data/tokenizer/model_proto.h"

namespace quintet {

// A model file begins otherwise.
inline bool is_hf_tokenizer(std::string_view bytes) {
  return bytes.starts_with('{');
}

Result<ModelProto> parse_hf_tokenizer(std::string_view bytes, const std::string& name);

}  // namespace quintet
