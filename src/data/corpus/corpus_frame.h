// What every way of making a corpus begins and ends with.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/file_store.h"
#include "base/result.h"
#include "data/corpus/corpus_writer.h"
#include "data/corpus/manifest.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {

// Fills in what a corpus takes over from its tokenizer. `sentinels`: so many ids above the model's
// pieces, if it has no sentinels of its own.
void describe_vocabulary(const Tokenizer& tokenizer, std::int64_t sentinels, Manifest& manifest);

// Completes the shards, copies the tokenizer and writes the manifest, which comes last: with it the
// corpus is complete, without it there is none. `model`: the bytes that the tokenizer was made of;
// its file may hold others by now.
Status finish_corpus(FileStore& files, const Path& folder, std::string_view model,
                     CorpusWriter& writer, Manifest& manifest);

}  // namespace quintet
