#include "data/corpus/corpus.h"

#include <algorithm>

#include "base/check.h"

namespace quintet {

Result<TokenShard> open_shard(const Path& folder, const TokenLayout& layout,
                              const ShardEntry& entry) {
  const Path name = folder / entry.name;
  QT_ASSIGN(TokenShard shard, TokenShard::open(name));
  if (shard.layout().tokenizer_digest != layout.tokenizer_digest) {
    return bad_input(
        "{}: made with another tokenizer (digest {}) than the corpus (digest {}); it does not "
        "belong here",
        name.string(), shard.layout().tokenizer_digest, layout.tokenizer_digest);
  }
  if (shard.layout() != layout || shard.tokens() != entry.tokens ||
      shard.documents() != entry.documents) {
    return bad_input(
        "{}: {} tokens of {} bytes, {} documents; the manifest says {} of {} bytes, {} documents",
        name.string(), shard.tokens(), shard.layout().token_bytes, shard.documents(), entry.tokens,
        layout.token_bytes, entry.documents);
  }
  return shard;
}

TokenStream::TokenStream(Path folder, TokenLayout layout, std::vector<ShardEntry> shards)
    : folder_(std::move(folder)), layout_(std::move(layout)), starts_(1, 0) {
  for (ShardEntry& entry : shards) {
    starts_.push_back(starts_.back() + entry.tokens);
    shards_.push_back(std::make_unique<LazyShard>());
    shards_.back()->entry = std::move(entry);
  }
}

std::uint64_t TokenStream::documents() const {
  std::uint64_t sum = 0;
  for (const auto& shard : shards_) sum += shard->entry.documents;
  return sum;
}

Result<const TokenShard*> TokenStream::shard(std::size_t index) const {
  const LazyShard& lazy = *shards_[index];
  if (const TokenShard* shard = lazy.ready.load(std::memory_order_acquire)) return shard;
  const std::lock_guard lock(lazy.mutex);
  if (lazy.shard == nullptr) {
    QT_ASSIGN(TokenShard shard, open_shard(folder_, layout_, lazy.entry));
    lazy.shard = std::make_unique<const TokenShard>(std::move(shard));
    lazy.ready.store(lazy.shard.get(), std::memory_order_release);
  }
  return lazy.shard.get();
}

template <class Body>
Status TokenStream::for_each_part(std::uint64_t begin, std::uint64_t end, const Body& body) const {
  QT_CHECK(begin <= end && end <= tokens(), "tokens {} to {} of {}", begin, end, tokens());
  auto index = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                        starts_.begin() - 1);
  while (begin < end) {
    const std::uint64_t stop = std::min(end, starts_[index + 1]);
    if (stop > begin) {
      QT_ASSIGN(const TokenShard* shard, this->shard(index));
      QT_TRY(body(*shard, begin - starts_[index], stop - starts_[index], begin));
      begin = stop;
    }
    ++index;
  }
  return {};
}

Status TokenStream::read(std::uint64_t begin, std::span<std::int32_t> out) const {
  return for_each_part(
      begin, begin + out.size(),
      [&](const TokenShard& shard, std::uint64_t from, std::uint64_t to, std::uint64_t first) {
        shard.range(from, to).copy_to(out.subspan(first - begin, to - from));
        return Status();
      });
}

Status TokenStream::document_ends(std::uint64_t begin, std::uint64_t end,
                                  std::vector<std::uint64_t>& places) const {
  places.clear();
  return for_each_part(
      begin, end,
      [&](const TokenShard& shard, std::uint64_t from, std::uint64_t to,
          std::uint64_t first) -> Status {
        std::uint64_t last = from;
        for (std::uint64_t d = shard.document_at(from); d < shard.documents(); ++d) {
          const std::uint64_t place = shard.document_end(d);
          if (place > to) break;
          // The table's checksums are not looked at here, so its order is.
          if (place < last) {
            return bad_input(
                "{}: document {} ends before it begins; `quintet data verify` says more",
                index_path(shard.name()).string(), d);
          }
          last = place;
          places.push_back(first + place - from);
        }
        return {};
      });
}

Result<Corpus> Corpus::open(const Path& folder) {
  Corpus corpus;
  corpus.folder_ = folder;
  QT_ASSIGN(corpus.manifest_, load_manifest(folder));
  std::map<Split, std::map<std::string, std::vector<ShardEntry>>> shards;
  for (const ShardEntry& entry : corpus.manifest_.shards) {
    shards[entry.split][entry.language].push_back(entry);
  }
  for (auto& [split, languages] : shards) {
    for (auto& [language, entries] : languages) {
      corpus.streams_[split][language] =
          std::make_unique<TokenStream>(folder, corpus.manifest_.layout, std::move(entries));
    }
  }
  return corpus;
}

std::vector<std::string> Corpus::languages(Split split) const {
  std::vector<std::string> names;
  if (const auto it = streams_.find(split); it != streams_.end()) {
    for (const auto& [language, stream] : it->second) {
      if (stream->tokens() > 0) names.push_back(language);
    }
  }
  return names;
}

const TokenStream& Corpus::stream(Split split, const std::string& language) const {
  const auto languages = streams_.find(split);
  QT_CHECK(languages != streams_.end() && languages->second.contains(language), "no {} in {}",
           language, name_of(split));
  return *languages->second.at(language);
}

}  // namespace quintet
