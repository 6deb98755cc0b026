#include "data/loader/corpus_source.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/index.h"
#include "base/text.h"
#include "data/loader/random_streams.h"
#include "data/tokenizer/model_proto.h"
#include "data/tokenizer/vocabulary.h"

namespace quintet {
namespace {

Status find_modes(const CorpusConfig& config, const Path& folder, ObjectiveIds& ids) {
  if (config.mode_tokens.empty()) return {};
  if (config.mode_tokens.size() != 3 || config.objective.name != "ul2") {
    return usage_error(
        "mode_tokens = [{}]: expected three pieces, for R, S and X, with objective \"ul2\"",
        join(config.mode_tokens, ", "));
  }
  const Path path = folder / kTokenizerFile;
  QT_ASSIGN(const std::string bytes, read_file(path));
  QT_ASSIGN(ModelProto model, parse_model(bytes, path.string()));
  QT_ASSIGN(const Vocabulary vocabulary, Vocabulary::create(std::move(model), path.string()));
  for (std::size_t i = 0; i < 3; ++i) {
    const auto id = vocabulary.find(config.mode_tokens[i]);
    if (!id) {
      return usage_error("mode_tokens: the corpus's tokenizer has no piece \"{}\"",
                         config.mode_tokens[i]);
    }
    ids.modes[i] = *id;
  }
  return {};
}

Status check_language(const MixtureEntry& entry, const std::string& split,
                      const std::string& language, const std::vector<std::string>& there) {
  if (std::find(there.begin(), there.end(), language) != there.end()) return {};
  const std::string near = nearest(language, there);
  return usage_error("{}: no language \"{}\" in split {}{}; there are {}", entry.folder, language,
                     split, near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near),
                     join(there, ", "));
}

// The languages of an entry that take part.
Result<std::vector<std::string>> languages_of(const MixtureEntry& entry, const Corpus& corpus,
                                              const std::string& split_name, Split split) {
  const std::vector<std::string> there = corpus.languages(split);
  for (const auto* list : {&entry.only, &entry.exclude}) {
    for (const std::string& language : *list) {
      QT_TRY(check_language(entry, split_name, language, there));
    }
  }
  std::map<std::string, double> weights;
  for (const auto& [language, weight] : entry.weights) {
    QT_TRY(check_language(entry, split_name, language, there));
    weights[language] = weight;
  }
  std::vector<std::string> taken;
  const auto among = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& language : there) {
    if (!entry.only.empty() && !among(entry.only, language)) continue;
    if (among(entry.exclude, language)) continue;
    // Weights name the languages that there are to be.
    if (!weights.empty() && !(weights[language] > 0)) continue;
    taken.push_back(language);
  }
  if (taken.empty()) {
    return bad_input("{}: no tokens in split {}{}", entry.folder, split_name,
                     there.empty() ? "" : " of the languages asked for");
  }
  return taken;
}

// A single corpus is a mixture of one.
Result<std::vector<MixtureEntry>> entries_of(const CorpusConfig& config) {
  std::vector<MixtureEntry> entries;
  std::vector<std::pair<std::string, double>> weights;
  for (const std::string& text : config.weights) {
    QT_ASSIGN(auto weight, parse_language_weight(text));
    weights.push_back(std::move(weight));
  }
  if (config.mixture.empty()) {
    MixtureEntry entry;
    entry.folder = config.folder;
    entry.alpha = config.alpha;
    entry.only = config.only;
    entry.exclude = config.exclude;
    entry.weights = std::move(weights);
    entries.push_back(std::move(entry));
    return entries;
  }
  if (!config.folder.empty()) {
    return usage_error("folder = \"{}\" beside a mixture: name it there", config.folder);
  }
  for (const std::string& text : config.mixture) {
    QT_ASSIGN(MixtureEntry entry, MixtureEntry::parse(text));
    if (entry.alpha < 0) entry.alpha = config.alpha;
    if (entry.only.empty()) entry.only = config.only;
    if (entry.exclude.empty()) entry.exclude = config.exclude;
    if (entry.weights.empty()) entry.weights = weights;
    entries.push_back(std::move(entry));
  }
  return entries;
}

Split split_of(const CorpusConfig& config) {
  return config.split == name_of(Split::kTrain) ? Split::kTrain : Split::kHeldOut;
}

}  // namespace

void CorpusConfig::list(FieldList& fields) {
  fields.add("folder", folder, "of a corpus made by `quintet data build`");
  fields.add("mixture", mixture,
             "several corpora instead: each \"FOLDER weight=2 epochs=1.5 alpha=0.5 only=de,fr "
             "exclude=en weights=de:3,fr:1 from=0 until=1000000\", all but the folder optional; "
             "epochs is the most that is used of a language, from and until count samples");
  fields.add("split", split, "which part of it", one_of({"train", "held_out"}));
  fields.add("only", only, "the languages to sample, by name; none named: all");
  fields.add("exclude", exclude, "languages not to sample");
  fields.add("weights", weights,
             "the languages to sample, each with its weight: [\"de=2\", \"fr=1\"]; none: by alpha");
  fields.add("alpha", alpha,
             "languages are sampled in proportion to examples^alpha; 1: as they are, 0: equally",
             between(0, 1));
  fields.add("pack", pack,
             "examples end with documents, and short ones share a row as segments; otherwise "
             "documents are joined and every example is full");
  fields.add("sentinels", sentinels,
             "0: as many as the corpus has; more: further ids above the corpus's, where the "
             "model's vocabulary has room",
             between(0, 100000));
  fields.add("mode_tokens", mode_tokens,
             "ul2: three pieces that lead the input to tell R, S and X apart; none: nothing does");
  objective.list(fields);
}

Result<std::vector<std::string>> CorpusConfig::folders() const {
  std::vector<std::string> all;
  for (const std::string& text : mixture) {
    QT_ASSIGN(MixtureEntry entry, MixtureEntry::parse(text));
    all.push_back(std::move(entry.folder));
  }
  if (all.empty()) all.push_back(folder);
  return all;
}

Status CorpusSource::open_objective(const CorpusConfig& config, std::int64_t source_length,
                                    std::int64_t target_length, std::int64_t model_vocabulary) {
  const Manifest& manifest = corpora_.front()->manifest();
  for (const auto& corpus : corpora_) {
    const Manifest& other = corpus->manifest();
    if (other.layout.tokenizer_digest != manifest.layout.tokenizer_digest ||
        !(other.special == manifest.special)) {
      return bad_input(
          "{}: made with another tokenizer, or with other sentinels, than {}; corpora of one "
          "mixture need the same",
          corpus->folder().string(), corpora_.front()->folder().string());
    }
  }
  const std::int64_t own = manifest.special.sentinels;
  sentinels_ = config.sentinels == 0 ? own : config.sentinels;
  const std::int64_t needed =
      manifest.layout.vocabulary + std::max<std::int64_t>(0, sentinels_ - own);
  if (manifest.layout.vocabulary > model_vocabulary) {
    return bad_input(
        "{}: its ids go up to {}, and the model's vocabulary has {}; model.vocabulary=0 gives the "
        "model the vocabulary of the corpus",
        corpora_.front()->folder().string(), manifest.layout.vocabulary - 1, model_vocabulary);
  }
  if (needed > model_vocabulary) {
    return usage_error(
        "sentinels = {}: {} more than the corpus has need ids up to {}, and the model's vocabulary "
        "has {}",
        config.sentinels, sentinels_ - own, needed - 1, model_vocabulary);
  }
  ObjectiveIds ids;
  ids.special = {manifest.special.eos, manifest.special.first_sentinel,
                 static_cast<std::int32_t>(own),
                 static_cast<std::int32_t>(manifest.layout.vocabulary)};
  ids.sentinels = sentinels_;
  special_ = ids.special;
  QT_TRY(find_modes(config, corpora_.front()->folder(), ids));
  QT_ASSIGN(Objective objective,
            Objective::create(config.objective, source_length, target_length, ids));
  objective_ = std::make_unique<Objective>(std::move(objective));
  table_ = std::make_unique<DenoiserTable>(*objective_, seed_);
  limits_ = {source_length, target_length > 0 ? target_length : objective_->target_length()};
  return {};
}

// Packed, short documents need more room for their targets than one that fills the row: so much
// that source and target are full at the same time, for documents of average length.
void CorpusSource::choose_target(const CorpusConfig& config,
                                 const std::vector<MixtureEntry>& entries) {
  double tokens = 0, documents = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const CorpusCounts counts = corpora_[i]->manifest().total(split_of(config));
    tokens += static_cast<double>(counts.tokens);
    documents += static_cast<double>(counts.documents);
  }
  const double mean =
      std::clamp(tokens / std::max(1.0, documents), 2.0, static_cast<double>(objective_->tokens()));
  const double target = static_cast<double>(limits_.source) * mean_length(*objective_, mean, true) /
                        mean_length(*objective_, mean, false);
  limits_.target =
      std::clamp(static_cast<std::int64_t>(std::ceil(target)), limits_.target, 4 * limits_.target);
}

Status CorpusSource::open_streams(const CorpusConfig& config,
                                  const std::vector<MixtureEntry>& entries) {
  const Split split = split_of(config);
  std::map<std::pair<std::string, std::string>, std::size_t> known;  // by folder and language
  std::vector<MixturePart> parts;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const MixtureEntry& entry = entries[e];
    QT_ASSIGN(const std::vector<std::string> languages,
              languages_of(entry, *corpora_[e], config.split, split));
    std::vector<MixturePart> own;
    double total = 0;
    for (const std::string& language : languages) {
      const TokenStream& tokens = corpora_[e]->stream(split, language);
      if (tokens.tokens() < static_cast<std::uint64_t>(Denoiser::kLeastTokens)) {
        left_out_.push_back(
            fmt::format("{}: {}: {} token", entry.folder, language, tokens.tokens()));
        continue;
      }
      const auto [place, added] = known.emplace(std::pair(entry.folder, language), streams_.size());
      if (added) {
        Stream stream{entry.folder, language, &tokens, nullptr, std::nullopt};
        // In a mixture the same language of two corpora is drawn differently.
        const std::string name = entries.size() == 1 ? language : fmt::format("{}/{}", e, language);
        if (pack_) {
          QT_ASSIGN(stream.packed, PackedStream::open(name, tokens, *objective_, limits_, seed_));
        } else {
          stream.stretches.emplace(name, tokens.tokens(), *table_, seed_);
        }
        streams_.push_back(std::move(stream));
      }
      const auto rows = static_cast<double>(streams_[place->second].rows());
      MixturePart part;
      part.stream = place->second;
      part.entry = e;
      part.from = entry.from;
      part.until = entry.until;
      if (entry.epochs > 0) {
        part.limit = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(entry.epochs * rows));
      }
      part.weight = std::pow(rows, entry.alpha);
      for (const auto& [name, weight] : entry.weights) {
        if (name == language) part.weight = weight;
      }
      total += part.weight;
      own.push_back(part);
    }
    for (MixturePart& part : own) {
      part.weight *= entry.weight / total;
      parts.push_back(part);
    }
  }
  if (parts.empty()) {
    return bad_input("{}: no language has text for an example in split {}", entries.front().folder,
                     config.split);
  }
  mixture_ = std::make_unique<Mixture>(std::move(parts), streams_.size(), seed_);
  for (const MixtureEntry& entry : entries) {
    if (entry.from < mixture_->end()) continue;
    return usage_error(
        "mixture: nothing is left from sample {} on, before {} takes part from {}; raise epochs or "
        "until of another corpus",
        mixture_->end(), entry.folder, entry.from);
  }
  return {};
}

Result<CorpusSource> CorpusSource::open(const CorpusConfig& config, std::int64_t source_length,
                                        std::int64_t target_length, std::int64_t model_vocabulary,
                                        std::uint64_t seed) {
  CorpusSource source;
  source.seed_ = seed;
  source.pack_ = config.pack;
  QT_ASSIGN(const std::vector<MixtureEntry> entries, entries_of(config));
  for (const MixtureEntry& entry : entries) {
    QT_ASSIGN(Corpus corpus, Corpus::open(entry.folder));
    source.corpora_.push_back(std::make_unique<Corpus>(std::move(corpus)));
  }
  QT_TRY(source.open_objective(config, source_length, target_length, model_vocabulary));
  if (config.pack && target_length == 0) source.choose_target(config, entries);
  QT_TRY(source.open_streams(config, entries));
  auto& names = source.group_names_;
  for (const Stream& stream : source.streams_) {
    const auto known = std::find(names.begin(), names.end(), stream.name);
    source.group_of_stream_.push_back(static_cast<std::size_t>(known - names.begin()));
    if (known == names.end()) names.push_back(stream.name);
  }
  return source;
}

bool CorpusSource::always_full() const {
  return !pack_ && objective_->fixed_lengths() && objective_->source_length() == limits_.source &&
         std::none_of(streams_.begin(), streams_.end(),
                      [](const Stream& stream) { return stream.stretches->short_of_text(); });
}

Result<CorpusSource::Stretch> CorpusSource::stretch_of(std::int64_t sample) const {
  const Mixture::Place place = mixture_->at(static_cast<std::uint64_t>(sample));
  const Stream& stream = streams_[place.stream];
  Stretch stretch{stream.folder, stream.name, 0, 0, 0, 1};
  if (!pack_) {
    const Stretches::Stretch found = stream.stretches->at(place.number);
    stretch.epoch = found.epoch;
    stretch.begin = found.begin;
    stretch.tokens = static_cast<std::int64_t>(found.tokens);
    return stretch;
  }
  QT_ASSIGN(const PackedStream::Row row, stream.packed->row(place.number));
  stretch.epoch = row.epoch;
  stretch.texts = static_cast<std::int64_t>(row.pieces().size());
  for (const PackPiece& piece : row.pieces()) stretch.tokens += piece.tokens;
  if (stretch.texts > 0) stretch.begin = row.pieces().front().begin;
  return stretch;
}

std::vector<CorpusSource::Language> CorpusSource::languages() const {
  std::vector<Language> list;
  const Mixture::Phase& first = mixture_->phases().front();
  double total = 0;
  for (const double weight : first.weights) total += weight;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    Language language{stream.folder,           stream.name,
                      stream.rows(),           0,
                      stream.tokens->tokens(), stream.tokens->documents(),
                      stream.packed.get()};
    for (std::size_t k = 0; k < first.streams.size(); ++k) {
      if (first.streams[k] == i) language.share = first.weights[k] / total;
    }
    list.push_back(std::move(language));
  }
  return list;
}

Status CorpusSource::fill(std::int64_t first, Batch& batch) {
  QT_CHECK(first >= 0 && batch.source_length >= objective_->source_length() &&
               batch.source_length >= (pack_ ? limits_.source : 0) &&
               batch.target_length >= (pack_ ? limits_.target : objective_->target_length()),
           "sample {} into {} x {}, examples of {} x {}", first, batch.source_length,
           batch.target_length, objective_->source_length(), limits_.target);
  if (const auto last = static_cast<std::uint64_t>(first + batch.sequences);
      last > mixture_->end()) {
    return bad_input(
        "the mixture is used up after {} samples (epochs, until), and sample {} is asked for; stop "
        "earlier, or raise epochs",
        mixture_->end(), last - 1);
  }
  constexpr std::int32_t kPad = 0;  // T5 pads, and starts its decoder, with 0
  std::fill(batch.source.begin(), batch.source.end(), kPad);
  std::fill(batch.labels.begin(), batch.labels.end(), -1);
  for (auto* segments : {&batch.source_segments, &batch.source_positions}) {
    segments->assign(pack_ ? batch.source.size() : 0, 0);
  }
  for (auto* segments : {&batch.target_segments, &batch.target_positions}) {
    segments->assign(pack_ ? batch.labels.size() : 0, 0);
  }
  std::vector<std::int32_t> lengths(index(batch.sequences));
  std::vector<std::int32_t> tokens(index(objective_->tokens()));
  const std::size_t source = index(batch.source_length), target = index(batch.target_length);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto row_of = [&](std::vector<std::int32_t>& all, std::size_t length) {
      return all.empty() ? std::span<std::int32_t>() : std::span(all).subspan(i * length, length);
    };
    Row row{row_of(batch.source, source),          row_of(batch.labels, target),
            row_of(batch.source_segments, source), row_of(batch.source_positions, source),
            row_of(batch.target_segments, target), row_of(batch.target_positions, target)};
    const std::uint64_t sample = static_cast<std::uint64_t>(first) + i;
    QT_TRY(pack_ ? fill_packed(sample, tokens, row) : fill_full(sample, tokens, row));
    lengths[i] = row.source_used;
  }
  const bool full = std::all_of(lengths.begin(), lengths.end(),
                                [&](std::int32_t length) { return length == batch.source_length; });
  if (full && always_full()) {
    batch.lengths.clear();
  } else {
    batch.lengths.assign(lengths.begin(), lengths.end());  // where it is, if there is room
  }
  if (pack_) {
    shift_right_in_segments(batch.labels, batch.target_segments, batch.target_length, kPad, kPad,
                            batch.target);
  } else {
    shift_right(batch.labels, batch.target_length, kPad, kPad, batch.target);
  }
  return {};
}

Status CorpusSource::fill_full(std::uint64_t sample, std::vector<std::int32_t>& tokens,
                               Row& row) const {
  const Mixture::Place place = mixture_->at(sample);
  const Stream& stream = streams_[place.stream];
  const Stretches::Stretch stretch = stream.stretches->at(place.number);
  PhiloxSequence random(seed_, random_stream("sample", "", sample));
  const Denoiser& denoiser = objective_->denoisers()[stretch.denoiser];
  const std::uint32_t draw = denoiser.uniform_split ? random.next() : 0;
  const std::span<std::int32_t> some = std::span(tokens).first(stretch.tokens);
  QT_TRY(stream.tokens->read_circular(stretch.begin, some));
  const auto count = static_cast<std::int64_t>(stretch.tokens);
  const std::int64_t source = denoiser.source_length(count, draw);
  const std::int64_t target = denoiser.target_length(count, draw);
  objective_->apply(denoiser, some, draw, random, row.source.first(index(source)),
                    row.labels.first(index(target)));
  row.source_used = static_cast<std::int32_t>(source);
  return {};
}

Status CorpusSource::fill_packed(std::uint64_t sample, std::vector<std::int32_t>& tokens,
                                 Row& row) const {
  const Mixture::Place place = mixture_->at(sample);
  const Stream& stream = streams_[place.stream];
  QT_ASSIGN(const PackedStream::Row packed, stream.packed->row(place.number));
  PhiloxSequence random(seed_, random_stream("sample", "", sample));
  std::size_t source_used = 0, target_used = 0;
  std::int32_t segment = 0;
  for (const PackPiece& piece : packed.pieces()) {
    const Denoiser& denoiser = objective_->denoisers()[piece.denoiser];
    const std::span<std::int32_t> some = std::span(tokens).first(piece.tokens);
    QT_TRY(stream.tokens->read_circular(piece.begin, some));
    const std::size_t source = index(denoiser.source_length(piece.tokens, piece.draw));
    const std::size_t target = index(denoiser.target_length(piece.tokens, piece.draw));
    objective_->apply(denoiser, some, piece.draw, random, row.source.subspan(source_used, source),
                      row.labels.subspan(target_used, target));
    ++segment;
    for (std::size_t i = 0; i < source; ++i) {
      row.source_segments[source_used + i] = segment;
      row.source_positions[source_used + i] = static_cast<std::int32_t>(i);
    }
    for (std::size_t i = 0; i < target; ++i) {
      row.target_segments[target_used + i] = segment;
      row.target_positions[target_used + i] = static_cast<std::int32_t>(i);
    }
    source_used += source;
    target_used += target;
  }
  row.source_used = static_cast<std::int32_t>(source_used);
  return {};
}

}  // namespace quintet
