#include "data/loader/corpus_source.h"

#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "base/text.h"
#include "data/loader/permutation.h"
#include "data/tokenizer/model_proto.h"
#include "data/tokenizer/vocabulary.h"

namespace quintet {
namespace {

// A stream of random numbers for each use, language and number.
std::uint64_t stream_for(const char* use, std::string_view language, std::uint64_t number) {
  return stream_of(fmt::format("{}:{}", use, language)) + number * 0x9E3779B97F4A7C15;
}

Status find_modes(const CorpusConfig& config, ObjectiveIds& ids) {
  if (config.mode_tokens.empty()) return {};
  if (config.mode_tokens.size() != 3 || config.objective.name != "ul2") {
    return usage_error(
        "mode_tokens = [{}]: expected three pieces, for R, S and X, with objective \"ul2\"",
        join(config.mode_tokens, ", "));
  }
  const Path path = Path(config.folder) / kTokenizerFile;
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

Status check_languages(const CorpusConfig& config, const std::vector<std::string>& there) {
  for (const std::string& language : config.only) {
    if (std::find(there.begin(), there.end(), language) != there.end()) continue;
    const std::string near = nearest(language, there);
    return usage_error(
        "{}: no language \"{}\" in split {}{}; there are {}", config.folder, language, config.split,
        near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near), join(there, ", "));
  }
  return {};
}

}  // namespace

void CorpusConfig::list(FieldList& fields) {
  fields.add("folder", folder, "of a corpus made by `quintet data build`");
  fields.add("split", split, "which part of it", one_of({"train", "held_out"}));
  fields.add("only", only, "the languages to sample, by name; none named: all");
  fields.add("alpha", alpha,
             "languages are sampled in proportion to examples^alpha; 1: as they are, 0: equally",
             between(0, 1));
  fields.add("pack", pack,
             "examples end with documents, and short ones share a row as segments; otherwise "
             "documents are joined and every example is full");
  fields.add("mode_tokens", mode_tokens,
             "ul2: three pieces that lead the input to tell R, S and X apart; none: nothing does");
  objective.list(fields);
}

Result<CorpusSource> CorpusSource::open(const CorpusConfig& config, std::int64_t source_length,
                                        std::int64_t target_length, std::int64_t model_vocabulary,
                                        std::uint64_t seed) {
  CorpusSource source;
  source.seed_ = seed;
  source.source_length_ = source_length;
  source.pack_ = config.pack;
  QT_ASSIGN(Corpus corpus, Corpus::open(config.folder));
  source.corpus_ = std::make_unique<Corpus>(std::move(corpus));
  const Manifest& manifest = source.corpus_->manifest();
  if (manifest.layout.vocabulary > model_vocabulary) {
    return bad_input(
        "{}: its ids go up to {}, and the model's vocabulary has {}; model.vocabulary=0 gives the "
        "model the vocabulary of the corpus",
        config.folder, manifest.layout.vocabulary - 1, model_vocabulary);
  }
  ObjectiveIds ids;
  ids.special = {manifest.special.eos, manifest.special.first_sentinel};
  ids.sentinels = manifest.special.sentinels;
  QT_TRY(find_modes(config, ids));
  QT_ASSIGN(source.objective_,
            Objective::create(config.objective, source_length, target_length, ids));

  const Split split = config.split == name_of(Split::kTrain) ? Split::kTrain : Split::kHeldOut;
  const std::vector<std::string> there = source.corpus_->languages(split);
  QT_TRY(check_languages(config, there));
  const auto needed = static_cast<std::uint64_t>(source.objective_.tokens());
  std::vector<std::uint64_t> stretches;
  for (const std::string& language : config.only.empty() ? there : config.only) {
    const TokenStream& tokens = source.corpus_->stream(split, language);
    if (tokens.tokens() < needed) {
      return usage_error(
          "{}: language {} has {} tokens, and one example takes {}; leave it out (only), or "
          "use shorter sources",
          config.folder, language, tokens.tokens(), needed);
    }
    stretches.push_back(tokens.tokens() / needed);
    source.streams_.push_back({language, &tokens, stretches.back()});
  }
  if (stretches.empty()) {
    return bad_input("{}: no tokens in split {}", config.folder, config.split);
  }
  source.schedule_ = std::make_unique<LanguageSchedule>(stretches, config.alpha, seed);
  return source;
}

bool CorpusSource::always_full() const {
  return !pack_ && objective_.denoisers().size() == 1 &&
         objective_.source_length() == source_length_;
}

CorpusSource::Place CorpusSource::place_of(std::uint64_t sample) const {
  const LanguageSchedule::Place place = schedule_->at(sample);
  const Stream& stream = streams_[place.language];
  const std::uint64_t epoch = place.number / stream.stretches;
  const auto length = static_cast<std::uint64_t>(objective_.tokens());
  // The tokens that make no whole stretch are left over at the ends, differently in every epoch.
  const std::uint64_t left = stream.tokens->tokens() - stream.stretches * length;
  PhiloxSequence random(seed_, stream_for("shift", stream.name, epoch));
  const std::uint64_t shift = random.below(static_cast<std::uint32_t>(left) + 1);
  const Permutation order(stream.stretches, seed_, stream_for("stretches", stream.name, epoch));
  return {place.language, epoch, shift + order(place.number % stream.stretches) * length};
}

CorpusSource::Stretch CorpusSource::stretch_of(std::int64_t sample) const {
  const Place place = place_of(static_cast<std::uint64_t>(sample));
  return {streams_[place.stream].name, place.epoch, place.begin, objective_.tokens()};
}

std::vector<CorpusSource::Language> CorpusSource::languages() const {
  std::vector<Language> list;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    list.push_back({streams_[i].name, streams_[i].stretches, schedule_->share(i)});
  }
  return list;
}

Status CorpusSource::fill(std::int64_t first, Batch& batch) {
  QT_CHECK(first >= 0 && batch.source_length >= objective_.source_length() &&
               batch.target_length >= objective_.target_length(),
           "sample {} into {} x {}, examples of {} x {}", first, batch.source_length,
           batch.target_length, objective_.source_length(), objective_.target_length());
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
  std::vector<std::int32_t> tokens(index(objective_.tokens()));
  std::vector<std::uint64_t> ends;
  const std::size_t source = index(batch.source_length), target = index(batch.target_length);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto row_of = [&](std::vector<std::int32_t>& all, std::size_t length) {
      return all.empty() ? std::span<std::int32_t>() : std::span(all).subspan(i * length, length);
    };
    Row row{row_of(batch.source, source),          row_of(batch.labels, target),
            row_of(batch.source_segments, source), row_of(batch.source_positions, source),
            row_of(batch.target_segments, target), row_of(batch.target_positions, target)};
    const std::uint64_t sample = static_cast<std::uint64_t>(first) + i;
    QT_TRY(pack_ ? fill_packed(sample, tokens, ends, row) : fill_full(sample, tokens, row));
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
  const Place place = place_of(sample);
  PhiloxSequence random(seed_, stream_for("sample", "", sample));
  const Denoiser& denoiser = objective_.choose(random);
  // A kind that takes fewer tokens takes them from anywhere in the stretch.
  const std::int64_t room = objective_.tokens() - denoiser.tokens;
  const std::uint64_t offset = room == 0 ? 0 : random.below(static_cast<std::uint32_t>(room) + 1);
  const std::span<std::int32_t> some = std::span(tokens).first(index(denoiser.tokens));
  QT_TRY(streams_[place.stream].tokens->read(place.begin + offset, some));
  const std::int64_t source = denoiser.source_length(denoiser.tokens);
  const std::int64_t target = denoiser.target_length(denoiser.tokens);
  objective_.apply(denoiser, some, random, row.source.first(index(source)),
                   row.labels.first(index(target)));
  row.source_used = static_cast<std::int32_t>(source);
  return {};
}

// Greedy: the documents of the stretch in their order, each an example of its own, as long as they
// fit; the last one cut to what does.
Status CorpusSource::fill_packed(std::uint64_t sample, std::vector<std::int32_t>& tokens,
                                 std::vector<std::uint64_t>& ends, Row& row) const {
  const Place place = place_of(sample);
  PhiloxSequence random(seed_, stream_for("sample", "", sample));
  const TokenStream& stream = *streams_[place.stream].tokens;
  QT_TRY(stream.read(place.begin, tokens));
  QT_TRY(stream.document_ends(place.begin, place.begin + tokens.size(), ends));
  ends.push_back(place.begin + tokens.size());
  std::size_t source_used = 0, target_used = 0;
  std::int32_t segment = 0;
  const auto put = [&](std::span<const std::int32_t> document) {
    const Denoiser& denoiser = objective_.choose(random);
    const auto source_left = static_cast<std::int64_t>(row.source.size() - source_used);
    const auto target_left = static_cast<std::int64_t>(row.labels.size() - target_used);
    std::int64_t count = std::min(static_cast<std::int64_t>(document.size()), denoiser.tokens);
    while (count >= Denoiser::kLeastTokens && (denoiser.source_length(count) > source_left ||
                                               denoiser.target_length(count) > target_left)) {
      --count;
    }
    if (count < Denoiser::kLeastTokens) return false;
    const std::size_t source = index(denoiser.source_length(count));
    const std::size_t target = index(denoiser.target_length(count));
    objective_.apply(denoiser, document.first(index(count)), random,
                     row.source.subspan(source_used, source),
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
    return true;
  };
  std::uint64_t begin = place.begin;
  for (const std::uint64_t end : ends) {
    const auto document =
        std::span<const std::int32_t>(tokens).subspan(begin - place.begin, end - begin);
    begin = end;
    if (document.size() < index(Denoiser::kLeastTokens)) continue;
    if (!put(document)) break;
  }
  // Documents too short to corrupt, every one of them: then they are one text.
  if (segment == 0) {
    const bool fits = put(tokens);
    QT_CHECK(fits, "an example of {} tokens does not fit an empty row", tokens.size());
  }
  row.source_used = static_cast<std::int32_t>(source_used);
  return {};
}

}  // namespace quintet
