// A corpus, opened to be read: the tokens of each language as one long sequence over its shards.
// Opening reads the manifest and nothing else; a shard is mapped when it is first touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "data/corpus/manifest.h"
#include "data/corpus/shard.h"

namespace quintet {

// Opens a shard of a corpus. One of another tokenizer, or of another size than the manifest says,
// is refused.
Result<TokenShard> open_shard(const Path& folder, const TokenLayout& layout,
                              const ShardEntry& entry);

// What a place in a stream costs: so much for each token and each document before it. Linear, so
// that the document at a given cost is found by binary search.
struct StreamCost {
  std::uint64_t per_token = 1, per_document = 0;

  std::uint64_t at(std::uint64_t token, std::uint64_t document) const {
    return token * per_token + document * per_document;
  }
};

// The tokens of one language and split. Safe to use from many threads.
class TokenStream {
 public:
  TokenStream(Path folder, TokenLayout layout, std::vector<ShardEntry> shards);

  std::uint64_t tokens() const { return starts_.back(); }
  std::uint64_t documents() const { return document_starts_.back(); }
  // Copies tokens [begin, begin + out.size()).
  Status read(std::uint64_t begin, std::span<std::int32_t> out) const;
  // The same in a circle: after the last token comes the first.
  Status read_circular(std::uint64_t begin, std::span<std::int32_t> out) const;

  // Documents one after the other, from the one whose cost is the last that is not above `from`;
  // until `body` says false. `number` counts through the stream.
  struct DocumentSpan {
    std::uint64_t number = 0, begin = 0, end = 0;
  };
  Status for_each_document(const StreamCost& cost, std::uint64_t from,
                           const std::function<bool(const DocumentSpan&)>& body) const;

 private:
  // Mapped by whoever comes first.
  struct LazyShard {
    ShardEntry entry;
    mutable std::mutex mutex;
    mutable std::unique_ptr<const TokenShard> shard;
    mutable std::atomic<const TokenShard*> ready = nullptr;
  };
  Result<const TokenShard*> shard(std::size_t index) const;
  // Calls body(shard, begin, end, first) for each shard's part of a range: tokens [begin, end) of
  // the shard, the first of which is number `first` of the stream.
  template <class Body>
  Status for_each_part(std::uint64_t begin, std::uint64_t end, const Body& body) const;

  Path folder_;
  TokenLayout layout_;
  std::vector<std::unique_ptr<LazyShard>> shards_;
  // Of each shard, and the end of the last: its first token and its first document.
  std::vector<std::uint64_t> starts_, document_starts_;
};

class Corpus {
 public:
  // Checks the manifest. Shards are checked when they are first read: one of another tokenizer, or
  // of another size than the manifest says, is refused then.
  static Result<Corpus> open(const Path& folder);

  const Path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  // Languages that have tokens in a split.
  std::vector<std::string> languages(Split split) const;
  const TokenStream& stream(Split split, const std::string& language) const;

 private:
  Corpus() = default;
  Path folder_;
  Manifest manifest_;
  std::map<Split, std::map<std::string, std::unique_ptr<TokenStream>>> streams_;
};

}  // namespace quintet
