// Grows the shards of a corpus, one series for every split and language, and counts what goes in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_store.h"
#include "base/result.h"
#include "data/corpus/manifest.h"
#include "data/corpus/shard.h"

namespace quintet {

// Where a CorpusWriter stands: all that is needed to continue it.
struct CorpusPosition {
  struct Series {
    std::uint64_t shard = 0;  // number of the shard being written
    ShardPosition position;
    CorpusCounts counts;  // of the whole series
  };
  std::map<std::string, std::map<Split, Series>> series;
  std::vector<ShardEntry> finished;
};

// For one thread.
class CorpusWriter {
 public:
  // Above this many a field is probably not a language; and every series has buffers.
  static constexpr std::size_t kMaxLanguages = 1000;

  CorpusWriter(FileStore& files, Path folder, TokenLayout layout, std::uint64_t shard_tokens);

  // Continues from a position that flush() gave, and removes whatever was written after it.
  Status resume(const CorpusPosition& position);
  // Adds documents of these lengths, whose tokens stand one after the other; `counts` is of all.
  Status add(Split split, const std::string& language, std::span<const std::int32_t> tokens,
             std::span<const std::uint32_t> lengths, const CorpusCounts& counts);
  // One document.
  Status add(Split split, const std::string& language, std::span<const std::int32_t> tokens,
             const CorpusCounts& counts) {
    const auto length = static_cast<std::uint32_t>(tokens.size());
    return add(split, language, tokens, {&length, 1}, counts);
  }
  Result<CorpusPosition> flush();
  // Completes all shards; they are then in `finished` of the position.
  Result<CorpusPosition> finish();

 private:
  struct Series {
    std::uint64_t shard = 0;
    CorpusCounts counts;
    std::unique_ptr<ShardWriter> writer;  // none before the first document
  };
  std::string shard_name(Split split, const std::string& language, std::uint64_t number) const;
  Status open_shard(Split split, const std::string& language, Series& series);
  Status finish_shard(Split split, const std::string& language, Series& series);
  Status remove_strays() const;

  FileStore* files_;
  Path folder_;
  TokenLayout layout_;
  std::uint64_t shard_tokens_;
  std::map<std::string, std::map<Split, Series>> series_;
  std::vector<ShardEntry> finished_;
  std::vector<Path> newly_finished_, final_;  // since the last flush, and since the one before
};

}  // namespace quintet
