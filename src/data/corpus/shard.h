// A shard: tokens of many documents, one after the other, and where each document ends. Two files,
// which docs/formats.md describes: NAME.tokens, nothing but the ids; NAME.index, the rest, with a
// checksum for every 64 KiB of both.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/file_store.h"
#include "base/files.h"
#include "base/result.h"

namespace quintet {

// What all shards of a corpus have in common.
struct TokenLayout {
  std::uint32_t token_bytes = 4;  // 2: ids are unsigned 16-bit; 4: signed 32-bit
  std::uint32_t vocabulary = 0;   // all ids are below it
  std::string tokenizer_digest;   // 32 hexadecimal digits

  bool operator==(const TokenLayout&) const = default;
};

// 16-bit ids as long as they fit, by the rule that Megatron follows.
inline std::uint32_t token_bytes_for(std::int64_t vocabulary) {
  return vocabulary < 65500 ? 2 : 4;
}

// Where a writer stands: all that is needed to continue from the files as they are.
struct ShardPosition {
  std::uint64_t tokens = 0, documents = 0;
};

// Writes one shard through a FileStore, under temporary names until finish().
class ShardWriter {
 public:
  static constexpr std::uint64_t kMaxTokens = UINT32_MAX;

  // `name`: the path without an extension.
  ShardWriter(FileStore& files, Path name, TokenLayout layout);
  // Continues a shard that was flushed at `position`: cuts its files to it and reads back the
  // blocks that are not full.
  Status resume(const ShardPosition& position);

  // Adds documents of these lengths, whose tokens stand one after the other.
  Status add(std::span<const std::int32_t> tokens, std::span<const std::uint32_t> lengths);
  Status add(std::span<const std::int32_t> document) {
    const auto length = static_cast<std::uint32_t>(document.size());
    return add(document, {&length, 1});
  }
  // Hands everything to the FileStore and to the disk; resume() continues from here.
  Status flush();
  // Completes the shard: after this, and not before, it exists under its own name.
  Status finish();

  const ShardPosition& position() const { return position_; }

 private:
  // A file that grows by blocks, each with its checksum. While it grows the checksums are kept in a
  // file beside it, so that nothing has to be read again to continue.
  class BlockFile {
   public:
    BlockFile(FileStore& files, Path final_path);
    Status resume(std::uint64_t size);
    Status write(std::span<const std::byte> bytes);
    Status flush();
    // Closes the last block. The checksums beside the file are no longer kept.
    Status close();
    Status append_footer(std::span<const std::byte> bytes) { return files_->append(part_, bytes); }
    // Gives the file its final name.
    Status finish();
    const std::vector<std::uint64_t>& checksums() const { return checksums_; }

   private:
    Status append_pending();  // what is in the block and not yet in the file
    Status close_block();
    Status write_blocks(std::span<const std::byte> bytes);  // whole ones, after no begun one

    FileStore* files_;
    Path final_, part_, sums_;
    Buffer<std::byte> block_;
    std::size_t appended_ = 0;  // bytes of the block that the file has
    std::vector<std::uint64_t> checksums_;
    std::size_t kept_ = 0;  // of the checksums
  };

  template <class To, class From, class Convert>
  static Status write_converted(BlockFile& file, std::span<const From> values,
                                const Convert& convert);

  Path name_;
  TokenLayout layout_;
  ShardPosition position_;
  BlockFile tokens_, ends_;
};

// One token's width apart, the ids of a stretch of a shard. Valid while the shard is open.
class TokenSpan {
 public:
  TokenSpan() = default;
  TokenSpan(const std::byte* data, std::uint32_t token_bytes, std::size_t size)
      : data_(data), token_bytes_(token_bytes), size_(size) {}
  std::size_t size() const { return size_; }
  // Writes the ids into `out`, which has size() places.
  void copy_to(std::span<std::int32_t> out) const;

 private:
  const std::byte* data_ = nullptr;
  std::uint32_t token_bytes_ = 4;
  std::size_t size_ = 0;
};

// A finished shard, mapped. Immutable; safe to share between threads.
class TokenShard {
 public:
  // Checks everything but the contents: sizes, layout, the checksum of the index's own tables.
  // Reads a few pages, whatever the size.
  static Result<TokenShard> open(const Path& name);

  const Path& name() const { return name_; }
  const TokenLayout& layout() const { return layout_; }
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t documents() const { return documents_; }

  TokenSpan range(std::uint64_t begin, std::uint64_t end) const;
  // All of them, as they are in the file.
  std::span<const std::byte> token_bytes() const { return token_file_.bytes(); }
  // Documents are found by number, or by a token that is in them.
  std::uint64_t document_begin(std::uint64_t document) const {
    return document == 0 ? 0 : document_end(document - 1);
  }
  std::uint64_t document_end(std::uint64_t document) const;
  std::uint64_t document_at(std::uint64_t token) const;

  // Reads everything: every checksum, that documents end in order and at the last token, that all
  // ids are in the vocabulary.
  Status verify() const;

 private:
  TokenShard(Path name, MappedFile tokens, MappedFile index)
      : name_(std::move(name)), token_file_(std::move(tokens)), index_file_(std::move(index)) {}
  Status parse();
  Status verify_blocks(std::span<const std::byte> bytes, std::uint64_t first_checksum,
                       const char* file) const;

  Path name_;
  MappedFile token_file_, index_file_;
  TokenLayout layout_;
  std::uint64_t tokens_ = 0, documents_ = 0;
};

// The two files of a shard.
Path tokens_path(const Path& name);
Path index_path(const Path& name);
// Those that a writer uses on the way. Some stay behind when a shard is finished, because a build
// that continues from before that needs them.
std::vector<Path> working_files(const Path& name);

}  // namespace quintet
