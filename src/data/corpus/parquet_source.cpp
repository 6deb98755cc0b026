#include "data/corpus/parquet_source.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <lz4.h>
#include <snappy.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "data/corpus/parquet_values.h"
#include "data/corpus/text_blocks.h"

namespace quintet {
namespace {

constexpr std::size_t kMaxHeader = 1 << 20;  // of a page; statistics can be long
constexpr std::uint32_t kMaxDeltaValues = 1 << 24;

std::uint32_t read_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::uint32_t read_big_u32(std::string_view bytes) {
  return __builtin_bswap32(read_u32(bytes));
}

bool inflate_all(std::string_view bytes, std::string& out) {
  z_stream stream{};
  constexpr int kGzipOrZlib = 32;
  if (::inflateInit2(&stream, MAX_WBITS + kGzipOrZlib) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  int status = Z_OK;
  // Several members may follow one another.
  while (status == Z_OK && stream.avail_in > 0) {
    status = ::inflate(&stream, Z_NO_FLUSH);
    if (status == Z_STREAM_END && stream.avail_in > 0) status = ::inflateReset(&stream);
  }
  const bool done = status == Z_STREAM_END && stream.avail_out == 0;
  ::inflateEnd(&stream);
  return done;
}

// Blocks, each with its two sizes before it.
bool lz4_framed(std::string_view bytes, std::string& out) {
  std::size_t done = 0;
  while (!bytes.empty()) {
    if (bytes.size() < 8) return false;
    const std::uint32_t size = read_big_u32(bytes), packed = read_big_u32(bytes.substr(4));
    bytes.remove_prefix(8);
    if (packed > bytes.size() || size > out.size() - done) return false;
    if (::LZ4_decompress_safe(bytes.data(), out.data() + done, static_cast<int>(packed),
                              static_cast<int>(size)) != static_cast<int>(size)) {
      return false;
    }
    bytes.remove_prefix(packed);
    done += size;
  }
  return done == out.size();
}

bool lz4_raw(std::string_view bytes, std::string& out) {
  return ::LZ4_decompress_safe(bytes.data(), out.data(), static_cast<int>(bytes.size()),
                               static_cast<int>(out.size())) == static_cast<int>(out.size());
}

// Reads a file at any place.
class FileAt {
 public:
  static Result<std::unique_ptr<FileAt>> open(const Path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      return io_error("{}: cannot open: {}", path.string(), std::strerror(errno));
    }
    return std::unique_ptr<FileAt>(new FileAt(path, descriptor));
  }
  FileAt(const FileAt&) = delete;
  FileAt& operator=(const FileAt&) = delete;
  ~FileAt() { ::close(descriptor_); }

  Status read(std::uint64_t offset, std::size_t size, std::string& out) const {
    out.resize(size);
    for (std::size_t done = 0; done < size;) {
      const ssize_t got =
          ::pread(descriptor_, out.data() + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return io_error("{}: read failed: {}", name(), std::strerror(errno));
      if (got == 0) return bad_input("{}: has become shorter while it was read", name());
      done += static_cast<std::size_t>(got);
    }
    return {};
  }
  std::string name() const { return path_.string(); }

 private:
  FileAt(Path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  Path path_;
  int descriptor_;
};

// The strings of one column of one row group, row by row.
class ColumnReader {
 public:
  ColumnReader(const FileAt& file, const ParquetColumn& column, const ParquetChunk& chunk)
      : file_(file), column_(column), chunk_(chunk) {}

  std::uint64_t consumed() const { return position_; }

  // The next row's strings, joined with line breaks; `null` when there is none. Fails when there
  // are no more rows.
  Status next(std::string& text, bool& null) {
    text.clear();
    null = true;
    for (bool first = true;; first = false) {
      // A row ends where the next value begins a row of its own, or where there are no more.
      while (values_left_ == 0) {
        if (position_ == chunk_.size) {
          if (!first) return {};
          return damaged("a column has fewer rows than its row group");
        }
        QT_TRY(read_page());
      }
      if (!levels_read_) {
        repetition_ = definition_ = 0;
        if ((column_.max_repetition > 0 && !repetitions_.next(repetition_)) ||
            (column_.max_definition > 0 && !definitions_.next(definition_)) ||
            repetition_ > column_.max_repetition || definition_ > column_.max_definition) {
          return damaged("levels of a page are missing or out of range");
        }
        levels_read_ = true;
      }
      if (!first && repetition_ == 0) return {};
      levels_read_ = false;
      --values_left_;
      if (definition_ < column_.max_definition) {
        if (column_.max_repetition == 0) return {};
        continue;
      }
      QT_TRY(read_value(text, !null));
      null = false;
      if (column_.max_repetition == 0) return {};
    }
  }

 private:
  Error damaged(const std::string& what) const {
    return bad_input("{}: column \"{}\": {}; the file is damaged", file_.name(), column_.path,
                     what);
  }

  Status read_page() {
    // 1. The header, of a size that is not known before.
    std::optional<ParquetPage> page;
    std::size_t header = 0;
    for (std::size_t size = 256;; size *= 8) {
      const auto some =
          static_cast<std::size_t>(std::min<std::uint64_t>(size, chunk_.size - position_));
      QT_TRY(file_.read(chunk_.begin + position_, some, packed_));
      QT_ASSIGN(page, parse_parquet_page(packed_, header, file_.name()));
      if (page) break;
      if (some < size || size > kMaxHeader) return damaged("the header of a page is cut short");
    }
    if (page->compressed > chunk_.size - position_ - header) {
      return damaged("a page reaches beyond its column");
    }
    if (page->uncompressed > kMaxParquetPage || page->compressed > kMaxParquetPage) {
      return bad_input(
          "{}: column \"{}\": a page of {} bytes; at most {} are read: write it with smaller pages",
          file_.name(), column_.path, std::max(page->uncompressed, page->compressed),
          kMaxParquetPage);
    }
    QT_TRY(file_.read(chunk_.begin + position_ + header, page->compressed, packed_));
    position_ += header + page->compressed;
    // 2. The contents.
    switch (page->kind) {
      case ParquetPage::Kind::kIndex:
        return {};
      case ParquetPage::Kind::kDictionary:
        return read_dictionary(*page);
      case ParquetPage::Kind::kData: {
        QT_TRY(decompress_page(chunk_.codec, packed_, page->uncompressed, file_.name(), data_));
        std::string_view rest = data_;
        QT_TRY(read_levels(rest, page->repetition, column_.max_repetition, repetitions_));
        QT_TRY(read_levels(rest, page->definition, column_.max_definition, definitions_));
        return begin_values(*page, rest);
      }
      case ParquetPage::Kind::kDataV2: {
        const std::size_t levels = page->definition_bytes + page->repetition_bytes;
        if (levels > packed_.size()) return damaged("levels reach beyond their page");
        levels_ = packed_.substr(0, levels);
        repetitions_ = {std::string_view(levels_).substr(0, page->repetition_bytes),
                        width_of(column_.max_repetition)};
        definitions_ = {std::string_view(levels_).substr(page->repetition_bytes),
                        width_of(column_.max_definition)};
        const std::string_view rest = std::string_view(packed_).substr(levels);
        if (page->is_compressed) {
          QT_TRY(decompress_page(chunk_.codec, rest, page->uncompressed - levels, file_.name(),
                                 data_));
        } else {
          data_ = rest;
        }
        return begin_values(*page, data_);
      }
    }
    return damaged("a page of an unknown kind");
  }

  static unsigned width_of(std::uint32_t most) {
    return static_cast<unsigned>(std::bit_width(most));
  }

  Status read_levels(std::string_view& rest, ParquetEncoding encoding, std::uint32_t most,
                     HybridReader& levels) {
    if (most == 0) return {};
    if (encoding != ParquetEncoding::kRle) {
      return bad_input("{}: column \"{}\": levels in encoding {}, which is not supported",
                       file_.name(), column_.path, static_cast<int>(encoding));
    }
    if (rest.size() < 4) return damaged("a page is too short for its levels");
    const std::uint32_t size = read_u32(rest);
    rest.remove_prefix(4);
    if (size > rest.size()) return damaged("levels reach beyond their page");
    levels = {rest.substr(0, size), width_of(most)};
    rest.remove_prefix(size);
    return {};
  }

  Status read_dictionary(const ParquetPage& page) {
    if (page.encoding != ParquetEncoding::kPlain &&
        page.encoding != ParquetEncoding::kPlainDictionary) {
      return damaged("a dictionary in an unknown encoding");
    }
    QT_TRY(decompress_page(chunk_.codec, packed_, page.uncompressed, file_.name(), dictionary_));
    entries_.clear();
    std::string_view rest = dictionary_;
    if (page.values > rest.size() / 4) return damaged("a dictionary of more entries than bytes");
    for (std::uint32_t i = 0; i < page.values; ++i) {
      if (rest.size() < 4) return damaged("a dictionary is cut short");
      const std::uint32_t size = read_u32(rest);
      rest.remove_prefix(4);
      if (size > rest.size()) return damaged("a dictionary is cut short");
      entries_.push_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    return {};
  }

  Status begin_values(const ParquetPage& page, std::string_view rest) {
    encoding_ = page.encoding;
    values_left_ = page.values;
    rest_ = rest;
    next_length_ = 0;
    switch (encoding_) {
      case ParquetEncoding::kPlain:
        return {};
      case ParquetEncoding::kPlainDictionary:
      case ParquetEncoding::kRleDictionary: {
        if (rest_.empty()) {  // nothing but nulls
          indices_ = {};
          return {};
        }
        const unsigned width = static_cast<std::uint8_t>(rest_.front());
        if (width > 32) return damaged("indices of more than 32 bits");
        indices_ = {rest_.substr(1), width};
        return {};
      }
      case ParquetEncoding::kDeltaLengthByteArray:
      case ParquetEncoding::kDeltaByteArray: {
        const std::size_t most = std::min(page.values, kMaxDeltaValues);
        prefixes_.clear();
        last_.clear();
        if (encoding_ == ParquetEncoding::kDeltaByteArray &&
            !read_delta_lengths(rest_, most, prefixes_)) {
          return damaged("lengths of prefixes are not valid");
        }
        if (!read_delta_lengths(rest_, most, lengths_)) {
          return damaged("lengths of strings are not valid");
        }
        return {};
      }
      default:
        return bad_input("{}: column \"{}\": encoding {} is not one of strings", file_.name(),
                         column_.path, static_cast<int>(encoding_));
    }
  }

  Status read_value(std::string& text, bool append) {
    std::string_view value;
    switch (encoding_) {
      case ParquetEncoding::kPlain: {
        if (rest_.size() < 4) return damaged("a page is cut short");
        const std::uint32_t size = read_u32(rest_);
        rest_.remove_prefix(4);
        if (size > rest_.size()) return damaged("a string reaches beyond its page");
        value = rest_.substr(0, size);
        rest_.remove_prefix(size);
        break;
      }
      case ParquetEncoding::kPlainDictionary:
      case ParquetEncoding::kRleDictionary: {
        std::uint32_t index = 0;
        if (!indices_.next(index)) return damaged("a page has fewer indices than values");
        if (index >= entries_.size()) return damaged("an index beyond the dictionary");
        value = entries_[index];
        break;
      }
      default: {
        if (next_length_ >= lengths_.size()) return damaged("a page has fewer strings than values");
        const std::uint32_t size = lengths_[next_length_];
        if (size > rest_.size()) return damaged("a string reaches beyond its page");
        value = rest_.substr(0, size);
        rest_.remove_prefix(size);
        if (encoding_ == ParquetEncoding::kDeltaByteArray) {
          if (next_length_ >= prefixes_.size() || prefixes_[next_length_] > last_.size()) {
            return damaged("a prefix longer than the string before");
          }
          last_.resize(prefixes_[next_length_]);
          last_ += value;
          value = last_;
        }
        ++next_length_;
      }
    }
    // What is too long is not gathered: the caller counts it.
    if (text.size() > kMaxDocumentBytes) return {};
    if (append) text += '\n';
    text += value.substr(0, kMaxDocumentBytes + 1);
    return {};
  }

  const FileAt& file_;
  const ParquetColumn& column_;
  ParquetChunk chunk_;
  std::uint64_t position_ = 0;  // in the chunk
  std::string packed_, data_, levels_, dictionary_;
  std::vector<std::string_view> entries_;  // of the dictionary
  // Of the page at hand.
  std::uint32_t values_left_ = 0;
  ParquetEncoding encoding_ = ParquetEncoding::kPlain;
  HybridReader repetitions_, definitions_, indices_;
  std::uint32_t repetition_ = 0, definition_ = 0;
  bool levels_read_ = false;  // of the next value, already
  std::string_view rest_;
  std::vector<std::uint32_t> lengths_, prefixes_;
  std::size_t next_length_ = 0;
  std::string last_;
};

class ParquetGroupSource final : public RecordSource {
 public:
  static Result<std::unique_ptr<ByteSource>> open(const Path& path, std::size_t group,
                                                  const RecordFields& fields) {
    auto source = std::unique_ptr<ParquetGroupSource>(new ParquetGroupSource);
    QT_ASSIGN(source->file_, read_parquet_footer(path));
    QT_ASSIGN(source->bytes_, FileAt::open(path));
    source->fields_ = fields;
    if (group >= source->file_.groups.size()) {
      return bad_input("{}: has {} row groups; it has changed since it was first read",
                       path.string(), source->file_.groups.size());
    }
    const ParquetRowGroup& rows = source->file_.groups[group];
    source->rows_left_ = rows.rows;
    const auto reader = [&](const std::string& column) -> Result<std::unique_ptr<ColumnReader>> {
      QT_ASSIGN(const std::size_t index, source->file_.find(column, path.string()));
      return std::make_unique<ColumnReader>(*source->bytes_, source->file_.columns[index],
                                            rows.chunks[index]);
    };
    QT_ASSIGN(source->text_, reader(fields.text));
    if (!fields.language.empty()) {
      QT_ASSIGN(source->language_, reader(fields.language));
    }
    return std::unique_ptr<ByteSource>(std::move(source));
  }

  std::uint64_t consumed() const override {
    return text_->consumed() + (language_ ? language_->consumed() : 0);
  }

 protected:
  Result<bool> next(std::string& lines) override {
    if (rows_left_ == 0) return false;
    --rows_left_;
    bool null = false, no_language = true;
    QT_TRY(text_->next(text_value_, null));
    if (language_) QT_TRY(language_->next(language_value_, no_language));
    if (!null && text_value_.size() > kMaxDocumentBytes) {
      append_json_line(kLeftOutField, "too long", lines);
      return true;
    }
    lines += '{';
    append_json_string(fields_.text, lines);
    lines += ':';
    if (null) {
      lines += "null";
    } else {
      append_json_string(text_value_, lines);
    }
    if (!no_language) {
      lines += ',';
      append_json_string(fields_.language, lines);
      lines += ':';
      append_json_string(language_value_, lines);
    }
    lines += "}\n";
    return true;
  }

 private:
  ParquetGroupSource() = default;

  ParquetFile file_;
  std::unique_ptr<FileAt> bytes_;
  RecordFields fields_;
  std::unique_ptr<ColumnReader> text_, language_;
  std::string text_value_, language_value_;
  std::uint64_t rows_left_ = 0;
};

}  // namespace

Status decompress_page(ParquetCodec codec, std::string_view bytes, std::size_t size,
                       const std::string& name, std::string& out) {
  const auto damaged = [&](const char* kind) {
    return bad_input("{}: a page is not valid {} data; the file is damaged", name, kind);
  };
  if (size > kMaxParquetPage) return damaged("compressed");
  if (codec == ParquetCodec::kNone) {
    if (bytes.size() != size) return damaged("uncompressed");
    out = bytes;
    return {};
  }
  out.resize(size);
  if (size == 0) return {};
  switch (codec) {
    case ParquetCodec::kSnappy: {
      std::size_t real = 0;
      if (!snappy::GetUncompressedLength(bytes.data(), bytes.size(), &real) || real != size ||
          !snappy::RawUncompress(bytes.data(), bytes.size(), out.data())) {
        return damaged("snappy");
      }
      return {};
    }
    case ParquetCodec::kGzip:
      return inflate_all(bytes, out) ? Status() : damaged("gzip");
    case ParquetCodec::kZstd: {
      const std::size_t real = ZSTD_decompress(out.data(), size, bytes.data(), bytes.size());
      return ZSTD_isError(real) == 0 && real == size ? Status() : damaged("zstd");
    }
    case ParquetCodec::kLz4:
      return lz4_raw(bytes, out) ? Status() : damaged("lz4");
    case ParquetCodec::kLz4Framed:  // some writers leave the framing out
      return lz4_framed(bytes, out) || lz4_raw(bytes, out) ? Status() : damaged("lz4");
    default:
      return bad_input(
          "{}: compressed with {}, which is not supported; snappy, gzip, zstd and lz4 "
          "are",
          name, codec == ParquetCodec::kBrotli ? "brotli" : "LZO");
  }
}

Result<std::uint64_t> parquet_group_bytes(const ParquetFile& file, std::size_t group,
                                          const RecordFields& fields, const std::string& name) {
  std::uint64_t bytes = 0;
  for (const std::string* column : {&fields.text, &fields.language}) {
    if (column->empty()) continue;
    QT_ASSIGN(const std::size_t index, file.find(*column, name));
    bytes += file.groups[group].chunks[index].size;
  }
  return bytes;
}

Result<std::unique_ptr<ByteSource>> open_parquet_group(const Path& path, std::size_t group,
                                                       const RecordFields& fields) {
  return ParquetGroupSource::open(path, group, fields);
}

}  // namespace quintet
