#include "data/tokenizer/tokenizer.h"

#include <xxhash.h>

#include "data/tokenizer/hf_tokenizer.h"

namespace quintet {

Result<Tokenizer> Tokenizer::open(const Path& path) {
  QT_ASSIGN(const std::string bytes, read_file(path));
  return create(bytes, path.string());
}

Result<Tokenizer> Tokenizer::create(std::string_view bytes, const std::string& name) {
  Tokenizer tokenizer;
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  tokenizer.digest_ = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  QT_ASSIGN(ModelProto model, parse_model(bytes, name));
  QT_ASSIGN(Vocabulary vocabulary, Vocabulary::create(std::move(model), name));
  tokenizer.vocabulary_ = std::make_shared<const Vocabulary>(std::move(vocabulary));
  const ModelProto& proto = tokenizer.vocabulary_->model();
  if (UnigramModel::supports(proto)) {
    QT_ASSIGN(UnigramModel unigram, UnigramModel::create(proto, name));
    tokenizer.unigram_ = std::make_shared<const UnigramModel>(std::move(unigram));
  }
  if (!tokenizer.is_native() || !proto.denormalizer_charsmap.empty()) {
    // The library reads model files only.
    const std::string converted = is_hf_tokenizer(bytes) ? serialize_model(proto) : "";
    QT_ASSIGN(SentencePiece library,
              SentencePiece::load(converted.empty() ? bytes : converted, name));
    tokenizer.library_ = std::make_shared<const SentencePiece>(std::move(library));
  }
  return tokenizer;
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids) const {
  if (library_ == nullptr) return vocabulary_->decode(ids);
  return library_->decode({ids.begin(), ids.end()});
}

Encoder::Encoder(const Tokenizer& tokenizer, std::size_t cache_entries)
    : library_(tokenizer.library_), vocabulary_(tokenizer.vocabulary_) {
  if (tokenizer.is_native()) {
    unigram_ = std::make_unique<UnigramEncoder>(tokenizer.unigram_, cache_entries);
  }
}

Status Encoder::encode(std::string_view text, Buffer<std::int32_t>& out) {
  if (unigram_ != nullptr) {
    unigram_->encode(text, out);
    return {};
  }
  QT_TRY(library_->encode(text, ids_));
  for (const std::int32_t id : ids_) unknown_ += id == vocabulary_->unknown_id() ? 1 : 0;
  out.append(ids_);
  return {};
}

void Encoder::trim_memory() {
  if (unigram_ != nullptr) unigram_->trim_memory();
  ids_ = {};
}

std::int64_t Encoder::unknown_characters() const {
  return unigram_ != nullptr ? unigram_->unknown_characters() : unknown_;
}

}  // namespace quintet
