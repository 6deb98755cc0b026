// Cuts input files into blocks of whole lines (or whole paragraphs) of about equal size: the unit
// in which a corpus is built. How the text is cut depends on the files alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/result.h"
#include "data/corpus/byte_source.h"
#include "data/corpus/inputs.h"

namespace quintet {

// The longest line, or paragraph in text files, that is read at all.
inline constexpr std::size_t kMaxDocumentBytes = 8 << 20;
// The size that blocks of a build have, but for whole documents.
inline constexpr std::size_t kTextBlockBytes = 512 << 10;

struct TextBlock {
  static constexpr std::size_t kPadding = 64;  // readable bytes after the text, for SIMD parsers

  // A part of the block that comes from one file.
  struct Part {
    std::uint32_t file = 0;          // index into the files
    std::int64_t first_line = 0;     // its number in the file, from 1
    std::size_t begin = 0, end = 0;  // in `text`; ends with a line break unless the file did not
  };
  // A line that was passed over: it is too long.
  struct LongLine {
    std::uint32_t file = 0;
    std::int64_t line = 0;
  };
  Buffer<char> text;
  std::vector<Part> parts;
  std::vector<LongLine> too_long;
  std::uint64_t file_bytes = 0;  // that were consumed of the files themselves

  void clear() {
    text.clear();
    parts.clear();
    too_long.clear();
    file_bytes = 0;
  }
};

// Where a TextBlocks stands, between two blocks; all that is needed to continue.
struct TextPosition {
  std::uint64_t file = 0;    // index into its files
  std::uint64_t offset = 0;  // bytes of the file's text that are done
  std::int64_t line = 1;     // the next one's number
};

// Reads its files one after the other. For one thread at a time.
class TextBlocks {
 public:
  // `indices`: which of `files` are its own. `files` must outlive it.
  TextBlocks(std::span<const InputFile> files, std::vector<std::uint32_t> indices,
             std::size_t block_bytes);

  // Continues at a position that position() gave. Text already done is read and dropped where the
  // file is compressed.
  Status seek(const TextPosition& position);
  // The next block; empty when there are no more.
  Status next(TextBlock& block);
  const TextPosition& position() const { return position_; }

 private:
  Status open();
  Status read_more(TextBlock& block, std::size_t want);
  Status fill_from_file(TextBlock& block);
  Status skip_long_line(TextBlock& block);
  void drop(TextBlock& block, std::size_t begin, std::size_t bytes);

  std::span<const InputFile> files_;
  std::vector<std::uint32_t> indices_;
  std::size_t block_bytes_;
  TextPosition position_;
  std::unique_ptr<ByteSource> source_;  // of the file at position_.file, if open
  std::uint64_t reported_ = 0;          // of its consumed()
  bool at_end_ = false;                 // it has no more
  Buffer<char> rest_;                   // read, but not yet in a block
};

}  // namespace quintet
