// The tokenizer that comes with a model, in the model's folder: found, compared with another one,
// written as Hugging Face wants it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/files.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {

// The file in a model's or a corpus's folder, by the names it may have there.
std::optional<Path> tokenizer_in(const Path& folder);
// The same of a file, which is itself meant, or a folder, which must have one.
Result<Path> tokenizer_at(const Path& file_or_folder);

// What makes the ids of two tokenizers mean different things; nothing where they mean the same. One
// may have more sentinels at its top than the other.
std::string vocabulary_difference(const Vocabulary& a, const Vocabulary& b);

// The files that go with a model's weights, by name: the SentencePiece model, `tokenizer.json` of
// unigram models, and what transformers must be told beside. `bytes`: of the file that the
// tokenizer was opened from.
std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer,
                                                   const std::string& bytes);

}  // namespace quintet
