#include "data/corpus/text_blocks.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/count_bytes.h"

namespace quintet {
namespace {

constexpr std::size_t kLeastRead = 64 << 10;
// In so many bytes at the end of what is there, a boundary may begin whose other bytes come later.
constexpr std::size_t kBoundaryBegins = 2;

std::int64_t count_lines(std::string_view text) {
  return static_cast<std::int64_t>(count_bytes(text, [](char c) { return c == '\n'; }));
}

// The place after the last whole document of `text`, or 0. Looks no further back than `from`, where
// it was looked before.
std::size_t last_boundary(std::string_view text, TextFormat format, std::size_t from) {
  for (std::size_t end = text.size(); end > from;) {
    const std::size_t at = text.rfind('\n', end - 1);
    if (at == std::string_view::npos || at < from) return 0;
    if (format != TextFormat::kParagraphs) return at + 1;
    // A line break after a line of nothing.
    if (at >= 1 && text[at - 1] == '\n') return at + 1;
    if (at >= 2 && text[at - 1] == '\r' && text[at - 2] == '\n') return at + 1;
    end = at;
  }
  return 0;
}

// The place after the first whole document, or 0.
std::size_t first_boundary(std::string_view text, TextFormat format) {
  for (std::size_t at = text.find('\n'); at != std::string_view::npos;
       at = text.find('\n', at + 1)) {
    if (format != TextFormat::kParagraphs) return at + 1;
    if (text.substr(at + 1).starts_with('\n')) return at + 2;
    if (text.substr(at + 1).starts_with("\r\n")) return at + 3;
  }
  return 0;
}

}  // namespace

TextBlocks::TextBlocks(std::span<const InputFile> files, std::vector<std::uint32_t> indices,
                       std::size_t block_bytes)
    : files_(files), indices_(std::move(indices)), block_bytes_(block_bytes) {}

Status TextBlocks::open() {
  QT_ASSIGN(source_, open_input(files_[indices_[position_.file]]));
  reported_ = 0;
  at_end_ = false;
  rest_.clear();
  return {};
}

Status TextBlocks::seek(const TextPosition& position) {
  position_ = position;
  source_.reset();
  if (position_.file == indices_.size() || position_.offset == 0) return {};
  QT_TRY(open());
  QT_TRY(source_->skip(position_.offset));
  reported_ = source_->consumed();
  return {};
}

Status TextBlocks::next(TextBlock& block) {
  block.clear();
  while (block.text.size() < block_bytes_ && position_.file < indices_.size()) {
    if (source_ == nullptr) QT_TRY(open());
    QT_TRY(fill_from_file(block));
    block.file_bytes += source_->consumed() - reported_;
    reported_ = source_->consumed();
    if (at_end_ && rest_.empty()) {
      source_.reset();
      position_ = {position_.file + 1, 0, 1};
    }
  }
  block.text.reserve_more(TextBlock::kPadding);
  std::memset(block.text.data() + block.text.size(), 0, TextBlock::kPadding);
  return {};
}

// Appends what comes next in the file, `want` bytes or the rest of it.
Status TextBlocks::read_more(TextBlock& block, std::size_t want) {
  Buffer<char>& text = block.text;
  text.reserve_more(want);
  QT_ASSIGN(const std::size_t got, source_->read({text.data() + text.size(), want}));
  text.set_size(text.size() + got);
  at_end_ = got < want;
  return {};
}

Status TextBlocks::fill_from_file(TextBlock& block) {
  Buffer<char>& text = block.text;
  const std::size_t begin = text.size();
  const std::uint32_t file = indices_[position_.file];
  const TextFormat format = files_[file].format;
  text.append(rest_.span());
  rest_.clear();
  // How much is looked at must not depend on what happened to be read already, or a build that was
  // interrupted would cut blocks elsewhere.
  std::size_t window = std::max(block_bytes_ - begin, kLeastRead);
  std::size_t end = 0, searched = 0;
  for (; end == 0; window += kLeastRead) {
    if (window < text.size() - begin) continue;
    if (!at_end_) QT_TRY(read_more(block, window - (text.size() - begin)));
    const std::string_view part(text.data() + begin, text.size() - begin);
    if (at_end_) {
      end = text.size();
      break;
    }
    if (const std::size_t boundary = last_boundary(part, format, searched)) end = begin + boundary;
    searched = part.size() - std::min(part.size(), kBoundaryBegins);
    if (end == 0 && part.size() > kMaxDocumentBytes) {
      block.too_long.push_back({file, position_.line});
      drop(block, begin, searched);
      return skip_long_line(block);
    }
  }
  rest_.append({text.data() + end, text.size() - end});
  text.set_size(end);
  if (end > begin) block.parts.push_back({file, position_.line, begin, end});
  position_.offset += end - begin;
  position_.line += count_lines({text.data() + begin, end - begin});
  return {};
}

// Drops the file's text up to the next boundary; what comes after it stays in rest_.
Status TextBlocks::skip_long_line(TextBlock& block) {
  Buffer<char>& text = block.text;
  const std::size_t begin = text.size();
  const TextFormat format = files_[indices_[position_.file]].format;
  for (bool done = false; !done;) {
    text.append(rest_.span());
    QT_TRY(read_more(block, kLeastRead));
    const std::string_view part(text.data() + begin, text.size() - begin);
    std::size_t bytes = first_boundary(part, format);
    done = bytes > 0 || at_end_;
    if (bytes == 0) {
      bytes = at_end_ ? part.size() : part.size() - std::min(part.size(), kBoundaryBegins);
    }
    drop(block, begin, bytes);
  }
  return {};
}

// Takes what was read from `begin` on out of the block again: so many bytes are passed over, and
// what comes after them is the rest.
void TextBlocks::drop(TextBlock& block, std::size_t begin, std::size_t bytes) {
  const std::string_view part(block.text.data() + begin, block.text.size() - begin);
  position_.offset += bytes;
  position_.line += count_lines(part.substr(0, bytes));
  rest_.clear();
  rest_.append({part.data() + bytes, part.size() - bytes});
  block.text.set_size(begin);
}

}  // namespace quintet
