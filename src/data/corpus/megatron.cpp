#include "data/corpus/megatron.h"

#include <algorithm>
#include <cstring>

#include "base/buffer.h"

namespace quintet {
namespace {

constexpr char kIndexMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::uint64_t kIndexVersion = 1;
// magic, u64 version, u8 type, u64 sequences; then, but for fairseq, u64 documents + 1.
constexpr std::uint64_t kShortHeader = 9 + 8 + 1 + 8, kHeader = kShortHeader + 8;

// The numbers of types in the file.
enum Type : std::uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

std::uint64_t size_of_type(std::uint8_t type) {
  switch (type) {
    case kU8:
    case kI8:
      return 1;
    case kI16:
    case kU16:
      return 2;
    case kI32:
      return 4;
    case kI64:
      return 8;
    default:
      return 0;
  }
}

template <class T>
T load(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof(T));  // tables are often misaligned
  return value;
}

// Appends ids of one type; false if one is negative or too large.
template <class T>
bool append_ids(const std::byte* data, std::uint64_t count, std::vector<std::int32_t>& ids) {
  for (std::uint64_t i = 0; i < count; ++i) {
    // Bytes are signed numbers here. NOLINTNEXTLINE(bugprone-signed-char-misuse)
    const auto id = static_cast<std::int64_t>(load<T>(data + i * sizeof(T)));
    if (id < 0 || id > INT32_MAX) return false;
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return true;
}

// Writes a table entry by entry, in large pieces.
template <class T>
class TableWriter {
 public:
  explicit TableWriter(AtomicFile& file) : file_(file) {}
  Status put(T value) {
    entries_.push_back(value);
    return entries_.size() < 8192 ? Status() : flush();
  }
  Status flush() {
    QT_TRY(file_.write(std::as_bytes(entries_.span())));
    entries_.clear();
    return {};
  }

 private:
  AtomicFile& file_;
  Buffer<T> entries_;
};

}  // namespace

Result<MegatronDataset> MegatronDataset::open(const Path& prefix) {
  QT_ASSIGN(MappedFile index, MappedFile::open(Path(prefix) += ".idx"));
  QT_ASSIGN(MappedFile data, MappedFile::open(Path(prefix) += ".bin"));
  MegatronDataset dataset(prefix, std::move(index), std::move(data));
  QT_TRY(dataset.parse());
  return dataset;
}

template <class T>
T MegatronDataset::entry(std::uint64_t table, std::uint64_t i) const {
  return load<T>(index_.bytes().data() + table + i * sizeof(T));
}

Status MegatronDataset::parse() {
  const std::span<const std::byte> bytes = index_.bytes();
  if (bytes.size() < kShortHeader ||
      std::memcmp(bytes.data(), kIndexMagic, sizeof(kIndexMagic)) != 0) {
    return bad_input("{}: not an index of Megatron's (MMIDIDX); older formats are not read",
                     path(".idx"));
  }
  if (const auto version = load<std::uint64_t>(bytes.data() + 9); version != kIndexVersion) {
    return bad_input("{}: version {}; only {} is known", path(".idx"), version, kIndexVersion);
  }
  type_ = static_cast<std::uint8_t>(bytes[17]);
  if (size_of_type(type_) == 0) {
    return bad_input("{}: tokens of type {}, which are no integers", path(".idx"), type_);
  }
  sequences_ = load<std::uint64_t>(bytes.data() + 18);
  if (sequences_ > bytes.size()) {
    return bad_input("{}: {} sequences do not fit into {} bytes; it is damaged", path(".idx"),
                     sequences_, bytes.size());
  }
  // fairseq's header looks the same but ends earlier; the file's size tells them apart.
  const std::uint64_t tables = sequences_ * (sizeof(std::int32_t) + sizeof(std::int64_t));
  if (bytes.size() == kShortHeader + tables) {
    lengths_ = kShortHeader;
    documents_ = sequences_;
  } else {
    const std::uint64_t starts =
        bytes.size() >= kHeader ? load<std::uint64_t>(bytes.data() + kShortHeader) : 0;
    if (starts == 0 || starts > bytes.size() ||
        bytes.size() != kHeader + tables + starts * sizeof(std::int64_t)) {
      return bad_input("{}: {} bytes do not hold {} sequences and {} documents; it is damaged",
                       path(".idx"), bytes.size(), sequences_, starts);
    }
    lengths_ = kHeader;
    starts_ = kHeader + tables;
    documents_ = starts - 1;
  }
  offsets_ = lengths_ + sequences_ * sizeof(std::int32_t);
  return check_all_is_in_documents();
}

// What no sequence or no document has would be left out without a word.
Status MegatronDataset::check_all_is_in_documents() const {
  std::uint64_t tokens = 0;
  for (std::uint64_t i = 0; i < sequences_; ++i) {
    const auto length = entry<std::int32_t>(lengths_, i);
    if (length < 0) {
      return bad_input("{}: sequence {} is {} tokens; it is damaged", path(".idx"), i, length);
    }
    tokens += static_cast<std::uint64_t>(length);
  }
  if (tokens * size_of_type(type_) < data_.bytes().size()) {
    return bad_input("{}: has {} bytes, and the sequences of {} have {}; one of them is damaged",
                     path(".bin"), data_.bytes().size(), path(".idx"),
                     tokens * size_of_type(type_));
  }
  if (starts_ == 0) return {};
  const auto begin = entry<std::int64_t>(starts_, 0),
             end = entry<std::int64_t>(starts_, documents_);
  if (begin != 0 || end < 0 || static_cast<std::uint64_t>(end) != sequences_) {
    return bad_input("{}: its documents are sequences {} to {} of {}, not all; it is damaged",
                     path(".idx"), begin, end, sequences_);
  }
  return {};
}

Status MegatronDataset::read_document(std::uint64_t document,
                                      std::vector<std::int32_t>& ids) const {
  ids.clear();
  if (starts_ == 0) return read_sequence(document, ids);
  const auto begin = entry<std::int64_t>(starts_, document);
  const auto end = entry<std::int64_t>(starts_, document + 1);
  if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > sequences_) {
    return bad_input("{}: document {} is sequences {} to {} of {}; it is damaged", path(".idx"),
                     document, begin, end, sequences_);
  }
  for (std::int64_t i = begin; i < end; ++i) {
    QT_TRY(read_sequence(static_cast<std::uint64_t>(i), ids));
  }
  return {};
}

Status MegatronDataset::read_sequence(std::uint64_t sequence,
                                      std::vector<std::int32_t>& ids) const {
  const auto length = entry<std::int32_t>(lengths_, sequence);
  const auto offset = entry<std::int64_t>(offsets_, sequence);
  const std::span<const std::byte> data = data_.bytes();
  if (length < 0 || offset < 0 || static_cast<std::uint64_t>(offset) > data.size() ||
      static_cast<std::uint64_t>(length) * size_of_type(type_) >
          data.size() - static_cast<std::uint64_t>(offset)) {
    return bad_input("{}: sequence {} is {} tokens at byte {}, and {} has {} bytes", path(".idx"),
                     sequence, length, offset, path(".bin"), data.size());
  }
  const std::byte* at = data.data() + offset;
  const auto count = static_cast<std::uint64_t>(length);
  const bool fits = type_ == kU8    ? append_ids<std::uint8_t>(at, count, ids)
                    : type_ == kI8  ? append_ids<std::int8_t>(at, count, ids)
                    : type_ == kI16 ? append_ids<std::int16_t>(at, count, ids)
                    : type_ == kU16 ? append_ids<std::uint16_t>(at, count, ids)
                    : type_ == kI32 ? append_ids<std::int32_t>(at, count, ids)
                                    : append_ids<std::int64_t>(at, count, ids);
  if (!fits) {
    return bad_input("{}: sequence {} has an id that is negative or above {}", path(".bin"),
                     sequence, INT32_MAX);
  }
  return {};
}

Status export_megatron(const Corpus& corpus, Split split, const std::string& language,
                       const Path& prefix) {
  const TokenLayout& layout = corpus.manifest().layout;
  QT_ASSIGN(AtomicFile data, AtomicFile::create(Path(prefix) += ".bin"));
  QT_ASSIGN(AtomicFile index, AtomicFile::create(Path(prefix) += ".idx"));
  std::vector<TokenShard> shards;
  std::uint64_t documents = 0;
  for (const ShardEntry& entry : corpus.manifest().shards) {
    if (entry.split != split || entry.language != language) continue;
    QT_ASSIGN(TokenShard shard, open_shard(corpus.folder(), layout, entry));
    QT_TRY(shard.verify());  // the other format has no checksums: damage must not get into it
    documents += shard.documents();
    shards.push_back(std::move(shard));
  }
  // The token files are as Megatron has them.
  for (const TokenShard& shard : shards) QT_TRY(data.write(shard.token_bytes()));
  QT_TRY(index.write(std::as_bytes(std::span(kIndexMagic))));
  QT_TRY(index.write(std::as_bytes(std::span(&kIndexVersion, 1))));
  const std::uint8_t type = layout.token_bytes == 2 ? kU16 : kI32;
  QT_TRY(index.write(std::as_bytes(std::span(&type, 1))));
  const std::uint64_t counts[] = {documents, documents + 1};
  QT_TRY(index.write(std::as_bytes(std::span(counts))));
  // Three tables, each one walk over all documents: memory does not depend on their number.
  TableWriter<std::int32_t> lengths(index);
  for (const TokenShard& shard : shards) {
    for (std::uint64_t d = 0; d < shard.documents(); ++d) {
      QT_TRY(
          lengths.put(static_cast<std::int32_t>(shard.document_end(d) - shard.document_begin(d))));
    }
  }
  QT_TRY(lengths.flush());
  TableWriter<std::int64_t> table(index);
  std::uint64_t before = 0;
  for (const TokenShard& shard : shards) {
    for (std::uint64_t d = 0; d < shard.documents(); ++d) {
      QT_TRY(table.put(
          static_cast<std::int64_t>((before + shard.document_begin(d)) * layout.token_bytes)));
    }
    before += shard.tokens();
  }
  for (std::uint64_t d = 0; d <= documents; ++d) QT_TRY(table.put(static_cast<std::int64_t>(d)));
  QT_TRY(table.flush());
  QT_TRY(data.commit());
  return index.commit();
}

}  // namespace quintet
