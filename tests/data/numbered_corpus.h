// A corpus whose tokens are numbered through, so that tests can tell where each came from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/corpus/corpus_writer.h"
#include "tests/support/folders.h"

namespace quintet {

inline constexpr std::int32_t kNumberedVocabulary = 1 << 24;
inline constexpr std::int32_t kNumberedBase = 1 << 20;  // language l has ids from (l + 1) of it on

// Documents of these lengths in each language.
inline void numbered_corpus(const Path& folder,
                            const std::map<std::string, std::vector<std::uint32_t>>& languages,
                            std::uint64_t shard_tokens = 100000) {
  Manifest manifest;
  manifest.layout = {4, kNumberedVocabulary, "00112233445566778899aabbccddeeff"};
  manifest.special = {0, 1, 2, kNumberedVocabulary - 1, 100};
  CorpusWriter writer(local_files(), folder, manifest.layout, shard_tokens);
  std::int32_t base = kNumberedBase;
  for (const auto& [language, lengths] : languages) {
    std::int32_t next = base;
    for (const std::uint32_t length : lengths) {
      std::vector<std::int32_t> document(length);
      for (std::int32_t& id : document) id = next++;
      if (!writer.add(Split::kTrain, language, document, {1, 0, 0, length, 0}).ok()) {
        throw std::runtime_error("cannot write");
      }
    }
    base += kNumberedBase;
  }
  const CorpusPosition position = writer.finish().value();
  manifest.shards = position.finished;
  for (const auto& [language, splits] : position.series) {
    for (const auto& [split, series] : splits) manifest.languages[language][split] = series.counts;
  }
  put_file(folder / kManifestFile, to_json(manifest));
}

}  // namespace quintet
