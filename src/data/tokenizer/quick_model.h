// A unigram vocabulary of any size, counted from text within seconds. Not a substitute for training
// (`quintet tokenizer train`): for benchmarks and tests that need a large vocabulary at hand.
#pragma once

#include <string_view>

#include "base/result.h"
#include "data/tokenizer/model_proto.h"

namespace quintet {

struct QuickModelOptions {
  std::size_t pieces = 32000;  // at most
  bool byte_fallback = false;
  std::string charsmap;  // normalization rules; none: text as it is
};

// <pad>, </s>, <unk>, the bytes if wanted, then the substrings that shorten the text most, with the
// logarithms of their frequencies as scores. Lines of the text are sentences.
Result<ModelProto> make_quick_model(std::string_view text, const QuickModelOptions& options);

// SentencePiece's own normalization rules ("nmt_nfkc", "nfkc", ...), for the option above.
Result<std::string> builtin_charsmap(const std::string& rule_name);

}  // namespace quintet
