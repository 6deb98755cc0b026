#include "data/corpus/shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <sys/mman.h>

#include "base/check.h"
#include "base/checksum.h"
#include "data/corpus/byte_source.h"

namespace quintet {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::size_t kBlockBytes = 64 << 10;
constexpr char kShardMagic[8] = {'Q', 'T', 'S', 'H', 'A', 'R', 'D', '1'};
constexpr std::uint32_t kShardVersion = 1;

// The last 64 bytes of an index.
struct Footer {
  char magic[8];
  std::uint32_t version;
  std::uint32_t token_bytes;
  std::uint64_t tokens;
  std::uint64_t documents;
  std::uint32_t block_bytes;
  std::uint32_t vocabulary;
  std::uint8_t tokenizer_digest[16];
  std::uint64_t checksum;  // of the tables of checksums and of this footer before it
};
static_assert(sizeof(Footer) == 64);

std::uint64_t footer_checksum(std::span<const std::byte> tables, const Footer& footer) {
  // Both fit easily into memory: eight bytes for every 64 KiB.
  std::vector<std::byte> all(tables.begin(), tables.end());
  const auto bytes = std::as_bytes(std::span(&footer, 1)).first(offsetof(Footer, checksum));
  all.insert(all.end(), bytes.begin(), bytes.end());
  return checksum(all);
}

std::uint64_t blocks_of(std::uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes;
}

Path with_suffix(const Path& name, const char* suffix) {
  Path path = name;
  path += suffix;
  return path;
}

// Fills `out` from a file, at an offset.
Status read_at(const Path& path, std::uint64_t offset, std::span<std::byte> out) {
  if (out.empty()) return {};
  QT_ASSIGN(const auto source, ByteSource::open_plain(path));
  QT_TRY(source->skip(offset));
  QT_ASSIGN(const std::size_t got, source->read({reinterpret_cast<char*>(out.data()), out.size()}));
  if (got == out.size()) return {};
  return bad_input("{}: {} bytes are missing at its end", path.string(), out.size() - got);
}

int digit_value(char c) {
  return c <= '9' ? c - '0' : c - 'a' + 10;
}

}  // namespace

Path tokens_path(const Path& name) {
  return with_suffix(name, ".tokens");
}
Path index_path(const Path& name) {
  return with_suffix(name, ".index");
}

std::vector<Path> working_files(const Path& name) {
  std::vector<Path> paths;
  for (const Path& file : {tokens_path(name), index_path(name)}) {
    for (const char* suffix : {".part", ".sums"}) paths.push_back(with_suffix(file, suffix));
  }
  return paths;
}

// --- Writing
// --------------------------------------------------------------------------------------

ShardWriter::BlockFile::BlockFile(FileStore& files, Path final_path)
    : files_(&files),
      final_(std::move(final_path)),
      part_(with_suffix(final_, ".part")),
      sums_(with_suffix(final_, ".sums")) {}

Status ShardWriter::BlockFile::resume(std::uint64_t size) {
  // The last run may have finished the shard and then not lived to say so.
  if (!std::filesystem::exists(part_) && std::filesystem::exists(final_)) {
    QT_TRY(files_->rename(final_, part_));
  }
  const std::uint64_t full = size / kBlockBytes;
  QT_TRY(files_->truncate(part_, size));
  checksums_.assign(full, 0);
  block_.clear();
  block_.reserve(kBlockBytes);
  block_.set_size(size % kBlockBytes);
  appended_ = block_.size();
  kept_ = full;
  QT_TRY(files_->truncate(sums_, full * sizeof(std::uint64_t)));
  QT_TRY(read_at(sums_, 0, std::as_writable_bytes(std::span(checksums_))));
  return read_at(part_, full * kBlockBytes, block_.span());
}

Status ShardWriter::BlockFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (block_.empty() && bytes.size() >= kBlockBytes) {
      const auto whole = bytes.first(bytes.size() / kBlockBytes * kBlockBytes);
      QT_TRY(write_blocks(whole));
      bytes = bytes.subspan(whole.size());
      continue;
    }
    const auto some = bytes.first(std::min(bytes.size(), kBlockBytes - block_.size()));
    block_.append(some);
    bytes = bytes.subspan(some.size());
    if (block_.size() == kBlockBytes) QT_TRY(close_block());
  }
  return {};
}

Status ShardWriter::BlockFile::write_blocks(std::span<const std::byte> bytes) {
  QT_TRY(files_->append(part_, bytes));
  for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    checksums_.push_back(checksum(bytes.subspan(at, kBlockBytes)));
  }
  return {};
}

Status ShardWriter::BlockFile::append_pending() {
  if (appended_ == block_.size()) return {};
  QT_TRY(files_->append(part_, block_.span().subspan(appended_)));
  appended_ = block_.size();
  return {};
}

Status ShardWriter::BlockFile::close_block() {
  if (block_.empty()) return {};
  QT_TRY(append_pending());
  checksums_.push_back(checksum(block_.span()));
  block_.clear();
  appended_ = 0;
  return {};
}

Status ShardWriter::BlockFile::flush() {
  if (block_.empty() && checksums_.empty()) return files_->truncate(part_, 0);
  QT_TRY(append_pending());
  QT_TRY(files_->sync(part_));
  if (kept_ == checksums_.size()) return {};
  QT_TRY(files_->append(sums_, std::as_bytes(std::span(checksums_).subspan(kept_))));
  kept_ = checksums_.size();
  return files_->sync(sums_);
}

Status ShardWriter::BlockFile::close() {
  if (block_.empty() && checksums_.empty()) return files_->truncate(part_, 0);
  return close_block();
}

Status ShardWriter::BlockFile::finish() {
  QT_TRY(files_->sync(part_));
  return files_->rename(part_, final_);
}

ShardWriter::ShardWriter(FileStore& files, Path name, TokenLayout layout)
    : name_(std::move(name)),
      layout_(std::move(layout)),
      tokens_(files, tokens_path(name_)),
      ends_(files, index_path(name_)) {}

Status ShardWriter::resume(const ShardPosition& position) {
  position_ = position;
  QT_TRY(tokens_.resume(position.tokens * layout_.token_bytes));
  return ends_.resume(position.documents * sizeof(std::uint32_t));
}

// Piece by piece, because there may be thousands of writers: none can have much memory of its own.
template <class To, class From, class Convert>
Status ShardWriter::write_converted(BlockFile& file, std::span<const From> values,
                                    const Convert& convert) {
  std::array<To, 2048> some;
  while (!values.empty()) {
    const std::size_t count = std::min(values.size(), some.size());
    std::transform(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count),
                   some.begin(), convert);
    QT_TRY(file.write(std::as_bytes(std::span(some).first(count))));
    values = values.subspan(count);
  }
  return {};
}

Status ShardWriter::add(std::span<const std::int32_t> tokens,
                        std::span<const std::uint32_t> lengths) {
  QT_CHECK(position_.tokens + tokens.size() <= kMaxTokens, "a shard of more than {} tokens",
           kMaxTokens);
  if (layout_.token_bytes == 4) {
    QT_TRY(tokens_.write(std::as_bytes(tokens)));
  } else {
    QT_TRY(write_converted<std::uint16_t>(
        tokens_, tokens, [](std::int32_t id) { return static_cast<std::uint16_t>(id); }));
  }
  std::uint64_t end = position_.tokens;
  position_.tokens += tokens.size();
  position_.documents += lengths.size();
  QT_TRY(write_converted<std::uint32_t>(ends_, lengths, [&](std::uint32_t length) {
    return static_cast<std::uint32_t>(end += length);
  }));
  QT_CHECK(end == position_.tokens, "documents end at token {} of {}", end, position_.tokens);
  return {};
}

Status ShardWriter::flush() {
  QT_TRY(tokens_.flush());
  return ends_.flush();
}

Status ShardWriter::finish() {
  QT_TRY(tokens_.close());
  QT_TRY(ends_.close());
  std::vector<std::uint64_t> tables = tokens_.checksums();
  tables.insert(tables.end(), ends_.checksums().begin(), ends_.checksums().end());
  Footer footer{};
  std::memcpy(footer.magic, kShardMagic, sizeof(kShardMagic));
  footer.version = kShardVersion;
  footer.token_bytes = layout_.token_bytes;
  footer.tokens = position_.tokens;
  footer.documents = position_.documents;
  footer.block_bytes = kBlockBytes;
  footer.vocabulary = layout_.vocabulary;
  QT_CHECK(layout_.tokenizer_digest.size() == 32, "digest {}", layout_.tokenizer_digest);
  for (std::size_t i = 0; i < 16; ++i) {
    footer.tokenizer_digest[i] =
        static_cast<std::uint8_t>(digit_value(layout_.tokenizer_digest[2 * i]) * 16 +
                                  digit_value(layout_.tokenizer_digest[2 * i + 1]));
  }
  footer.checksum = footer_checksum(std::as_bytes(std::span(tables)), footer);
  if (!tables.empty()) QT_TRY(ends_.append_footer(std::as_bytes(std::span(tables))));
  QT_TRY(ends_.append_footer(std::as_bytes(std::span(&footer, 1))));
  // The index last: where it is, the shard is whole.
  QT_TRY(tokens_.finish());
  return ends_.finish();
}

// --- Reading
// --------------------------------------------------------------------------------------

void TokenSpan::copy_to(std::span<std::int32_t> out) const {
  QT_CHECK(out.size() == size_, "{} places for {} tokens", out.size(), size_);
  if (token_bytes_ == 4) {
    if (size_ > 0) std::memcpy(out.data(), data_, size_ * sizeof(std::int32_t));
    return;
  }
  const auto* narrow = reinterpret_cast<const std::uint16_t*>(data_);
  for (std::size_t i = 0; i < size_; ++i) out[i] = narrow[i];
}

Result<TokenShard> TokenShard::open(const Path& name) {
  QT_ASSIGN(MappedFile tokens, MappedFile::open(tokens_path(name)));
  QT_ASSIGN(MappedFile index, MappedFile::open(index_path(name)));
  TokenShard shard(name, std::move(tokens), std::move(index));
  QT_TRY(shard.parse());
  // Samples are read in random order: reading ahead would mostly read what nobody wants.
  const auto bytes = shard.token_file_.bytes();
  if (!bytes.empty()) {
    ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_RANDOM);
  }
  return shard;
}

Status TokenShard::parse() {
  const std::span<const std::byte> index = index_file_.bytes(), tokens = token_file_.bytes();
  const std::string path = index_path(name_).string();
  Footer footer{};
  if (index.size() < sizeof(footer)) {
    return bad_input("{}: {} bytes are no index of a shard; it is damaged", path, index.size());
  }
  std::memcpy(&footer, index.data() + index.size() - sizeof(footer), sizeof(footer));
  if (std::memcmp(footer.magic, kShardMagic, sizeof(kShardMagic)) != 0) {
    return bad_input("{}: not the index of a shard, or cut short", path);
  }
  if (footer.version != kShardVersion) {
    return bad_input("{}: a shard of version {}; this program reads version {}", path,
                     footer.version, kShardVersion);
  }
  if ((footer.token_bytes != 2 && footer.token_bytes != 4) || footer.block_bytes != kBlockBytes ||
      footer.tokens > ShardWriter::kMaxTokens || footer.documents > index.size()) {
    return bad_input("{}: damaged: tokens of {} bytes, {} of them, {} documents", path,
                     footer.token_bytes, footer.tokens, footer.documents);
  }
  if (tokens.size() != footer.tokens * footer.token_bytes) {
    return bad_input("{}: has {} bytes where its index says {}; it is damaged or another shard's",
                     tokens_path(name_).string(), tokens.size(),
                     footer.tokens * footer.token_bytes);
  }
  const std::uint64_t ends_bytes = footer.documents * sizeof(std::uint32_t);
  const std::uint64_t tables = blocks_of(tokens.size()) + blocks_of(ends_bytes);
  if (index.size() != ends_bytes + tables * sizeof(std::uint64_t) + sizeof(footer)) {
    return bad_input("{}: {} bytes do not hold {} documents and their checksums; it is damaged",
                     path, index.size(), footer.documents);
  }
  if (footer_checksum(index.subspan(ends_bytes, tables * sizeof(std::uint64_t)), footer) !=
      footer.checksum) {
    return bad_input("{}: its checksum does not match; it is damaged", path);
  }
  tokens_ = footer.tokens;
  documents_ = footer.documents;
  layout_.token_bytes = footer.token_bytes;
  layout_.vocabulary = footer.vocabulary;
  for (const std::uint8_t byte : footer.tokenizer_digest) {
    layout_.tokenizer_digest += fmt::format("{:02x}", byte);
  }
  if (documents_ == 0 && tokens_ > 0) {
    return bad_input("{}: {} tokens and no document; it is damaged", path, tokens_);
  }
  return {};
}

TokenSpan TokenShard::range(std::uint64_t begin, std::uint64_t end) const {
  QT_CHECK(begin <= end && end <= tokens_, "tokens {} to {} of {}", begin, end, tokens_);
  return {token_file_.bytes().data() + begin * layout_.token_bytes, layout_.token_bytes,
          static_cast<std::size_t>(end - begin)};
}

std::uint64_t TokenShard::document_end(std::uint64_t document) const {
  QT_CHECK(document < documents_, "document {} of {}", document, documents_);
  std::uint32_t end = 0;
  std::memcpy(&end, index_file_.bytes().data() + document * sizeof(end), sizeof(end));
  return std::min<std::uint64_t>(end, tokens_);  // a damaged table must not lead outside
}

std::uint64_t TokenShard::document_at(std::uint64_t token) const {
  std::uint64_t low = 0, high = documents_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (document_end(middle) <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

Status TokenShard::verify_blocks(std::span<const std::byte> bytes, std::uint64_t first_checksum,
                                 const char* file) const {
  const std::byte* tables = index_file_.bytes().data() + documents_ * sizeof(std::uint32_t) +
                            first_checksum * sizeof(std::uint64_t);
  for (std::size_t block = 0; block * kBlockBytes < bytes.size(); ++block) {
    const auto part = bytes.subspan(block * kBlockBytes,
                                    std::min(kBlockBytes, bytes.size() - block * kBlockBytes));
    std::uint64_t expected = 0;
    std::memcpy(&expected, tables + block * sizeof(expected), sizeof(expected));
    if (checksum(part) != expected) {
      return bad_input(
          "{}{}: bytes {} to {} do not match their checksum; the file is damaged, build the corpus "
          "again or copy it from elsewhere",
          name_.string(), file, block * kBlockBytes, block * kBlockBytes + part.size());
    }
  }
  return {};
}

Status TokenShard::verify() const {
  const auto all = token_file_.bytes();
  if (!all.empty()) ::madvise(const_cast<std::byte*>(all.data()), all.size(), MADV_SEQUENTIAL);
  const std::uint64_t ends_bytes = documents_ * sizeof(std::uint32_t);
  QT_TRY(verify_blocks(token_file_.bytes(), 0, ".tokens"));
  QT_TRY(verify_blocks(index_file_.bytes().first(ends_bytes), blocks_of(token_file_.bytes().size()),
                       ".index"));
  std::uint64_t before = 0;
  for (std::uint64_t document = 0; document < documents_; ++document) {
    const std::uint64_t end = document_end(document);
    if (end < before) {
      return bad_input("{}.index: document {} ends at token {}, before it begins", name_.string(),
                       document, end);
    }
    before = end;
  }
  if (before != tokens_) {
    return bad_input("{}.index: the last document ends at token {} of {}", name_.string(), before,
                     tokens_);
  }
  std::vector<std::int32_t> ids(1 << 16);
  for (std::uint64_t begin = 0; begin < tokens_; begin += ids.size()) {
    const std::uint64_t end = std::min<std::uint64_t>(begin + ids.size(), tokens_);
    const std::span<std::int32_t> some = std::span(ids).first(end - begin);
    range(begin, end).copy_to(some);
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (some[i] < 0 || static_cast<std::uint32_t>(some[i]) >= layout_.vocabulary) {
        return bad_input("{}.tokens: token {} is {}, outside the vocabulary of {}", name_.string(),
                         begin + i, some[i], layout_.vocabulary);
      }
    }
  }
  return {};
}

}  // namespace quintet
