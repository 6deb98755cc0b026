#include "data/corpus/corpus_frame.h"

namespace quintet {

void describe_vocabulary(const Tokenizer& tokenizer, std::int64_t sentinels, Manifest& manifest) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::int64_t size = vocabulary.size();
  manifest.special = {vocabulary.pad_id(), vocabulary.eos_id(), vocabulary.unknown_id(), 0,
                      vocabulary.sentinels()};
  if (vocabulary.sentinels() == 0) {
    manifest.special.sentinels = static_cast<std::int32_t>(sentinels);
    size += sentinels;
  }
  manifest.special.first_sentinel = static_cast<std::int32_t>(size - 1);
  manifest.layout = {token_bytes_for(size), static_cast<std::uint32_t>(size), tokenizer.digest()};
}

Status finish_corpus(FileStore& files, const Path& folder, std::string_view model,
                     CorpusWriter& writer, Manifest& manifest) {
  QT_ASSIGN(const CorpusPosition position, writer.finish());
  QT_TRY(files.replace(folder / kTokenizerFile, model));
  manifest.shards = position.finished;
  for (const auto& [language, splits] : position.series) {
    for (const auto& [split, series] : splits) manifest.languages[language][split] = series.counts;
  }
  return files.replace(folder / kManifestFile, to_json(manifest));
}

}  // namespace quintet
