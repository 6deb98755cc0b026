#include "data/loader/pairs_source.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/index.h"
#include "base/json.h"
#include "base/text.h"
#include "data/corpus/inputs.h"
#include "data/corpus/text_blocks.h"
#include "data/loader/permutation.h"
#include "data/loader/random_streams.h"
#include "data/tokenizer/model_tokenizer.h"

namespace quintet {
namespace {

// Files, and the columns that are wanted of those that have columns.
Result<std::vector<InputFile>> find_files(const PairsConfig& config) {
  InputOptions options;
  options.names = config.files;
  options.text_field = config.source_field;
  QT_ASSIGN(FoundInputs found, find_inputs(options));
  for (InputFile& file : found.files) {
    if (file.format != TextFormat::kJsonLines || file.kind == InputKind::kWarc) {
      return bad_input("{}: pairs are read from JSON lines, CSV, TSV and Parquet", file.name());
    }
    file.fields.language = config.target_field;
  }
  for (const NotTaken& other : found.not_taken)
    return bad_input("{}: {}; name the files to be read", other.path.string(), other.reason);
  return std::move(found.files);
}

Result<std::string> text_in(const Json& record, const std::string& field,
                            const std::string& place) {
  const auto at = record.find(field);
  if (at == record.end()) return bad_input("{}: has no field \"{}\"", place, field);
  if (!at->is_string())
    return bad_input("{}: \"{}\" is {}, expected a string", place, field, at->type_name());
  return at->get<std::string>();
}

}  // namespace

void PairsConfig::list(FieldList& fields) {
  fields.add("files", files,
             "pairs: files, folders or patterns of JSON lines (plain, .gz, .zst, ...), CSV, TSV or "
             "Parquet with a source and a target text in each record");
  fields.add("tokenizer", tokenizer,
             "pairs: SentencePiece model, or a folder with one; empty: that of model.weights");
  fields.add("source_field", source_field, "pairs: field of the source text");
  fields.add("target_field", target_field, "pairs: field of the target text");
}

Result<PairsSource> PairsSource::open(const PairsConfig& config, std::int64_t source_length,
                                      std::int64_t target_length, std::int64_t model_vocabulary,
                                      std::uint64_t seed) {
  if (config.files.empty())
    return usage_error("data.kind = \"pairs\" needs data.files, the files with the pairs");
  QT_ASSIGN(const Path path, tokenizer_at(config.tokenizer));
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(path));
  if (tokenizer.vocabulary().size() > model_vocabulary) {
    return bad_input(
        "{}: has {} pieces, and the model's vocabulary {}; model.vocabulary=0 gives the model the "
        "vocabulary of the tokenizer",
        path.string(), tokenizer.vocabulary().size(), model_vocabulary);
  }
  if (tokenizer.vocabulary().eos_id() < 0)
    return bad_input("{}: has no piece that ends a text (</s>)", path.string());
  PairsSource source;
  source.source_length_ = source_length;
  source.target_length_ = target_length;
  source.eos_ = tokenizer.vocabulary().eos_id();
  source.seed_ = seed;
  QT_TRY(source.read_files(config, tokenizer));
  if (source.pairs_.empty()) return bad_input("{}: no pairs", join(config.files, ", "));
  return source;
}

Status PairsSource::read_files(const PairsConfig& config, const Tokenizer& tokenizer) {
  QT_ASSIGN(const std::vector<InputFile> files, find_files(config));
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < files.size(); ++i) indices.push_back(i);
  TextBlocks blocks(files, std::move(indices), kTextBlockBytes);
  Encoder encoder(tokenizer);
  TextBlock block;
  while (true) {
    QT_TRY(blocks.next(block));
    if (block.text.empty() && block.too_long.empty()) return {};
    for (const TextBlock::LongLine& line : block.too_long) {
      return bad_input("{}:{}: longer than {} bytes", files[line.file].name(), line.line,
                       kMaxDocumentBytes);
    }
    for (const TextBlock::Part& part : block.parts) {
      std::string_view rest(block.text.data() + part.begin, part.end - part.begin);
      for (std::int64_t number = part.first_line; !rest.empty(); ++number) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        QT_TRY(add(line, fmt::format("{}:{}", files[part.file].name(), number), config, encoder));
      }
    }
  }
}

Status PairsSource::add(std::string_view line, const std::string& place, const PairsConfig& config,
                        Encoder& encoder) {
  QT_ASSIGN(const Json record, parse_json(line, place));
  if (!record.is_object()) return bad_input("{}: not a JSON object", place);
  for (const std::string_view field : {kBadRecordField, kLeftOutField}) {
    if (const auto at = record.find(field); at != record.end() && at->is_string())
      return bad_input("{}: {}", place, at->get<std::string>());
  }
  QT_ASSIGN(const std::string source, text_in(record, config.source_field, place));
  QT_ASSIGN(const std::string target, text_in(record, config.target_field, place));
  Pair pair{ids_.size(), 0, 0};
  QT_TRY(append(source, source_length_, cut_sources_, encoder));
  pair.source = static_cast<std::uint32_t>(ids_.size() - pair.begin);
  QT_TRY(append(target, target_length_, cut_targets_, encoder));
  pair.target = static_cast<std::uint32_t>(ids_.size() - pair.begin) - pair.source;
  pairs_.push_back(pair);
  return {};
}

// A text's ids and the end mark, which stays when the text is too long.
Status PairsSource::append(const std::string& text, std::int64_t length, std::int64_t& cut,
                           Encoder& encoder) {
  text_ids_.clear();
  QT_TRY(encoder.encode(text, text_ids_));
  const std::size_t most = index(length - 1);
  if (text_ids_.size() > most) ++cut;
  const auto kept = text_ids_.span().first(std::min(most, text_ids_.size()));
  ids_.insert(ids_.end(), kept.begin(), kept.end());
  ids_.push_back(eos_);
  return {};
}

std::uint64_t PairsSource::pair_of(std::int64_t sample) const {
  const auto number = static_cast<std::uint64_t>(sample), size = std::uint64_t{pairs_.size()};
  const std::uint64_t epoch = number / size;
  return Permutation(size, seed_, random_stream("pairs", "", epoch))(number % size);
}

Status PairsSource::fill(std::int64_t first, Batch& batch) {
  QT_CHECK(batch.source_length >= source_length_ && batch.target_length >= target_length_,
           "pairs of {} x {} into {} x {}", source_length_, target_length_, batch.source_length,
           batch.target_length);
  constexpr std::int32_t kPad = 0;  // T5 pads, and starts its decoder, with 0
  std::fill(batch.source.begin(), batch.source.end(), kPad);
  std::fill(batch.labels.begin(), batch.labels.end(), -1);
  batch.lengths.resize(index(batch.sequences));
  for (std::int64_t row = 0; row < batch.sequences; ++row) {
    const Pair& pair = pairs_[pair_of(first + row)];
    const auto ids = std::span(ids_).subspan(pair.begin, pair.source + pair.target);
    std::copy_n(ids.begin(), pair.source, batch.source.begin() + row * batch.source_length);
    std::copy_n(ids.begin() + pair.source, pair.target,
                batch.labels.begin() + row * batch.target_length);
    batch.lengths[index(row)] = static_cast<std::int32_t>(pair.source);
  }
  shift_right(batch.labels, batch.target_length, kPad, kPad, batch.target);
  return {};
}

std::string PairsSource::digest() const {
  std::vector<std::uint32_t> lengths;
  for (const Pair& pair : pairs_) {
    lengths.push_back(pair.source);
    lengths.push_back(pair.target);
  }
  return checksum_text(checksum(std::as_bytes(std::span(ids_)))) + " " +
         checksum_text(checksum(std::as_bytes(std::span(lengths))));
}

std::string PairsSource::description() const {
  std::string text = fmt::format("{} pair{}", with_commas(pairs()), pairs() == 1 ? "" : "s");
  if (cut_sources_ > 0)
    text += fmt::format("; {} sources were cut to batch.source = {} tokens",
                        with_commas(cut_sources_), source_length_);
  if (cut_targets_ > 0)
    text += fmt::format("; {} targets were cut to batch.target = {} tokens",
                        with_commas(cut_targets_), target_length_);
  return text;
}

}  // namespace quintet
