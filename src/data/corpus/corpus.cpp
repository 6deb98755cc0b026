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
    : folder_(std::move(folder)),
      layout_(std::move(layout)),
      starts_(1, 0),
      document_starts_(1, 0) {
  for (ShardEntry& entry : shards) {
    starts_.push_back(starts_.back() + entry.tokens);
    document_starts_.push_back(document_starts_.back() + entry.documents);
    shards_.push_back(std::make_unique<LazyShard>());
    shards_.back()->entry = std::move(entry);
  }
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

Status TokenStream::read_circular(std::uint64_t begin, std::span<std::int32_t> out) const {
  while (!out.empty()) {
    const auto some = std::min<std::uint64_t>(out.size(), tokens() - begin);
    QT_TRY(read(begin, out.first(some)));
    out = out.subspan(some);
    begin = 0;
  }
  return {};
}

Status TokenStream::for_each_document(const StreamCost& cost, std::uint64_t from,
                                      const std::function<bool(const DocumentSpan&)>& body) const {
  // 1. The shard, by what the manifest says; then the document, by the shard's table.
  std::size_t index = 0;
  for (std::size_t low = 0, high = shards_.size(); low < high;) {
    const std::size_t middle = (low + high) / 2;
    if (cost.at(starts_[middle], document_starts_[middle]) <= from) {
      index = middle;
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (shards_.empty()) return {};
  QT_ASSIGN(const TokenShard* shard, this->shard(index));
  std::uint64_t first = 0;
  for (std::uint64_t low = 0, high = shard->documents(); low < high;) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (cost.at(starts_[index] + shard->document_begin(middle), document_starts_[index] + middle) <=
        from) {
      first = middle;
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  // 2. From there on.
  for (;;) {
    std::uint64_t begin = shard->documents() == 0 ? 0 : shard->document_begin(first);
    for (std::uint64_t d = first; d < shard->documents(); ++d) {
      const std::uint64_t end = shard->document_end(d);
      // The table's checksums are not looked at here, so its order is.
      if (end < begin || end > shard->tokens()) {
        return bad_input(
            "{}: document {} ends before it begins, or after the last token; `quintet "
            "data verify` says more",
            index_path(shard->name()).string(), d);
      }
      if (!body({document_starts_[index] + d, starts_[index] + begin, starts_[index] + end})) {
        return {};
      }
      begin = end;
    }
    if (++index == shards_.size()) return {};
    QT_ASSIGN(shard, this->shard(index));
    first = 0;
  }
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
