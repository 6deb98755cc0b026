// How many bytes of text each id of a corpus stands for: what turns a loss by token into bits per
// byte, which can be compared between tokenizers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

// By id: the bytes of its piece as text, a space for the mark of a word's beginning; 0 for those
// that are no text (sentinels, the end, padding) and for the unknown. The text is the normalised
// one, which is what the model sees. Empty where the corpus has no tokenizer (imported ones).
Result<std::vector<std::int32_t>> text_bytes(const Path& corpus);

}  // namespace quintet
