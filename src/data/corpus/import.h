// `quintet data import`: a corpus from datasets that are already tokenized.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file_store.h"
#include "base/files.h"
#include "base/result.h"
#include "data/corpus/manifest.h"

namespace quintet {

struct ImportOptions {
  // Megatron's datasets, without .bin and .idx, each with its language.
  struct Dataset {
    std::string language;
    Path prefix;
  };
  std::vector<Dataset> datasets;
  Path output;
  Path tokenizer;  // that their ids are of
  std::int64_t sentinels = 100;
  std::int64_t shard_tokens = std::int64_t{1} << 28;
};

// Makes a corpus of them, in a folder that is empty or not there. Refused: an id that the tokenizer
// does not have. Their documents' bytes and characters are not known, and counted as none.
Result<Manifest> import_corpus(const ImportOptions& options, FileStore& files);

}  // namespace quintet
