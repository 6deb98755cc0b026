#include "train/validation_data.h"

#include <sstream>

#include "base/text.h"
#include "data/loader/text_bytes.h"
#include "data/synthetic.h"

namespace quintet {
namespace {

// No training takes so many samples.
constexpr std::int64_t kSyntheticBegin = std::int64_t{1} << 48;

// Of a mixture, what is sampled and how much, but not when: validation is the same at every step.
std::string without_phases(const std::string& entry) {
  std::istringstream words(entry);
  std::vector<std::string> kept;
  for (std::string word; words >> word;) {
    if (!word.starts_with("epochs=") && !word.starts_with("from=") && !word.starts_with("until="))
      kept.push_back(word);
  }
  return join(kept, " ");
}

CorpusConfig validation_corpus(const RunConfig& config) {
  CorpusConfig corpus = config.data.corpus;
  corpus.split = config.validate.split;
  for (std::string& entry : corpus.mixture) entry = without_phases(entry);
  if (config.validate.corpus.empty()) return corpus;
  // Another corpus, as it is.
  corpus.folder = config.validate.corpus;
  corpus.mixture.clear();
  corpus.only.clear();
  corpus.exclude.clear();
  corpus.weights.clear();
  return corpus;
}

Status has_split(const CorpusConfig& corpus) {
  QT_ASSIGN(const std::vector<std::string> folders, corpus.folders());
  for (const std::string& folder : folders) {
    QT_ASSIGN(const Manifest manifest, load_manifest(folder));
    const Split split = corpus.split == name_of(Split::kTrain) ? Split::kTrain : Split::kHeldOut;
    if (manifest.total(split).tokens > 0) continue;
    return usage_error(
        "validation: {} has no text in its {} split; build it with `quintet data build --held-out "
        "0.01`, or name another corpus in validate.corpus (validate.split=\"train\" takes all of "
        "one that holds nothing out), or set validate.every=0",
        folder, corpus.split);
  }
  return {};
}

}  // namespace

Result<ValidationData> open_validation_data(const RunConfig& config, const StepOptions& options) {
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  const BatchShape& batch = options.batch;
  ValidationData data;
  if (config.data.kind == "corpus") {
    const CorpusConfig corpus = validation_corpus(config);
    QT_TRY(has_split(corpus));
    QT_ASSIGN(CorpusSource source, CorpusSource::open(corpus, batch.source, batch.target,
                                                      options.model.vocab_size, seed));
    QT_ASSIGN(data.text_bytes, text_bytes(source.corpus().folder()));
    data.padded = !source.always_full();
    data.source = std::make_unique<CorpusSource>(std::move(source));
    return data;
  }
  if (config.data.kind == "pairs") {
    if (config.validate.corpus.empty()) {
      return usage_error(
          "validation: data.kind = \"pairs\" holds nothing out; name a file of other pairs in "
          "validate.corpus, or set validate.every=0");
    }
    PairsConfig pairs = config.data.pairs;
    pairs.files = {config.validate.corpus};
    pairs.tokenizer = tokenizer_place(config).string();
    QT_ASSIGN(PairsSource source,
              PairsSource::open(pairs, batch.source, batch.target, options.model.vocab_size, seed));
    data.most = source.pairs();
    data.padded = true;
    data.source = std::make_unique<PairsSource>(std::move(source));
    return data;
  }
  if (!config.validate.corpus.empty()) {
    return usage_error(
        "validate.corpus has no effect with data.kind = \"synthetic\": validation takes examples "
        "of the same languages that are not trained on; leave it out");
  }
  QT_ASSIGN(SyntheticCorpus source,
            SyntheticCorpus::create(config.data.synthetic, config.data.corpus.objective.spans,
                                    options.model.vocab_size, batch.source, batch.target, seed));
  data.first = kSyntheticBegin;
  data.padded = batch.padded;
  data.source = std::make_unique<SyntheticCorpus>(std::move(source));
  return data;
}

}  // namespace quintet
