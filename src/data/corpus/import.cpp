#include "data/corpus/import.h"

#include "data/corpus/corpus_frame.h"
#include "data/corpus/megatron.h"

namespace quintet {
namespace {

Status add_datasets(const ImportOptions& options, CorpusWriter& writer, Manifest& manifest) {
  std::size_t tokens = 0;
  std::vector<std::int32_t> ids;
  for (const ImportOptions::Dataset& source : options.datasets) {
    QT_ASSIGN(const MegatronDataset dataset, MegatronDataset::open(source.prefix));
    manifest.options["import " + source.language] += source.prefix.string() + "\n";
    for (std::uint64_t d = 0; d < dataset.documents(); ++d) {
      QT_TRY(dataset.read_document(d, ids));
      for (const std::int32_t id : ids) {
        if (static_cast<std::uint32_t>(id) < manifest.layout.vocabulary) continue;
        return bad_input(
            "{}: document {} has the id {}, outside the tokenizer's vocabulary of {}; is it the "
            "tokenizer that made it?",
            source.prefix.string(), d, id, manifest.layout.vocabulary);
      }
      if (ids.size() > static_cast<std::size_t>(options.shard_tokens)) {
        return usage_error("{}: document {} has {} tokens, more than a shard of {}",
                           source.prefix.string(), d, ids.size(), options.shard_tokens);
      }
      tokens += ids.size();
      QT_TRY(writer.add(Split::kTrain, source.language, ids,
                        {1, 0, 0, static_cast<std::int64_t>(ids.size()), 0}));
    }
  }
  if (tokens == 0) {
    return bad_input("{}: nothing to import: no tokens in {} datasets",
                     options.datasets.front().prefix.string(), options.datasets.size());
  }
  return {};
}

}  // namespace

Result<Manifest> import_corpus(const ImportOptions& options, FileStore& files) {
  QT_ASSIGN(const std::string model, read_file(options.tokenizer));
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(model, options.tokenizer.string()));
  Manifest manifest;
  describe_vocabulary(tokenizer, options.sentinels, manifest);
  std::error_code failure;
  if (std::filesystem::exists(options.output) &&
      !std::filesystem::is_empty(options.output, failure)) {
    return usage_error("{}: not empty; choose another folder", options.output.string());
  }
  QT_TRY(make_directories(options.output));
  CorpusWriter writer(files, options.output, manifest.layout,
                      static_cast<std::uint64_t>(options.shard_tokens));
  const auto import = [&]() -> Status {
    QT_TRY(add_datasets(options, writer, manifest));
    return finish_corpus(files, options.output, model, writer, manifest);
  };
  if (const Status status = import(); !status.ok()) {
    // The folder was empty, and is again, for another attempt; what failed first is what is said.
    for (const Split split : kSplits) {
      (void)files.remove_folder(options.output / name_of(split));
    }
    (void)files.remove(options.output / kTokenizerFile);
    return status.error();
  }
  return manifest;
}

}  // namespace quintet
