#include "data/corpus/parquet_format.h"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace quintet {
namespace {

constexpr std::string_view kMagic = "PAR1";
constexpr std::uint64_t kMaxMetadata = std::uint64_t{256} << 20;
constexpr std::uint32_t kMaxSchemaDepth = 64;

// A reader of Thrift's compact encoding. Once something is wrong it stays wrong, and all values are
// zero: callers look at ok() where it matters.
class Thrift {
 public:
  enum Type : std::uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
  };
  explicit Thrift(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return !failed_; }
  bool ran_out() const { return ran_out_; }  // wrong, because bytes are missing at the end
  std::size_t position() const { return at_; }

  // Calls body(id, type) for every field of a struct; body reads the value, or skip()s it.
  template <class Body>
  void fields(const Body& body) {
    if (++depth_ > kMaxDepth) fail();
    std::int64_t id = 0;
    while (ok()) {
      const std::uint8_t head = byte();
      const auto type = static_cast<Type>(head & 15);
      if (!ok() || type == kStop) break;
      id = head >> 4 != 0 ? id + (head >> 4) : zigzag();
      body(id, type);
    }
    --depth_;
  }
  // Calls body(type) for every element of a list.
  template <class Body>
  void list(const Body& body) {
    const std::uint8_t head = byte();
    std::uint64_t size = head >> 4;
    if (size == 15) size = varint();
    // Every element takes a byte at least.
    if (size > bytes_.size() - at_) return fail_short();
    for (std::uint64_t i = 0; ok() && i < size; ++i) body(static_cast<Type>(head & 15));
  }
  std::int64_t number(Type type) {
    if (type == kByte) return static_cast<std::int8_t>(byte());
    if (type != kI16 && type != kI32 && type != kI64) {
      fail();
      return 0;
    }
    return zigzag();
  }
  std::string_view binary() {
    const std::uint64_t size = varint();
    if (!ok()) return {};
    if (size > bytes_.size() - at_) {
      fail_short();
      return {};
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void skip(Type type) {
    switch (type) {
      case kTrue:
      case kFalse:
        break;
      case kByte:
        byte();
        break;
      case kI16:
      case kI32:
      case kI64:
        varint();
        break;
      case kDouble:
        if (bytes_.size() - at_ < 8) return fail_short();
        at_ += 8;
        break;
      case kBinary:
        binary();
        break;
      case kList:
      case kSet:
        if (++depth_ > kMaxDepth) return fail();
        list([&](Type element) { skip_element(element); });
        --depth_;
        break;
      case kMap: {
        const std::uint64_t size = varint();
        if (size == 0) break;
        if (size > bytes_.size() - at_) return fail_short();
        if (++depth_ > kMaxDepth) return fail();
        const std::uint8_t types = byte();
        for (std::uint64_t i = 0; ok() && i < size; ++i) {
          skip_element(static_cast<Type>(types >> 4));
          skip_element(static_cast<Type>(types & 15));
        }
        --depth_;
        break;
      }
      case kStruct:
        fields([&](std::int64_t, Type inner) { skip(inner); });
        break;
      default:
        fail();
    }
  }
  void fail() { failed_ = true; }

 private:
  static constexpr int kMaxDepth = 32;

  // In a list a boolean is a byte; as a field it is part of the type.
  void skip_element(Type type) {
    if (type == kTrue || type == kFalse) {
      byte();
    } else {
      skip(type);
    }
  }
  void fail_short() {
    failed_ = true;
    ran_out_ = true;
  }
  std::uint8_t byte() {
    if (failed_) return 0;
    if (at_ == bytes_.size()) {
      fail_short();
      return 0;
    }
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint8_t part = byte();
      if (!ok()) return 0;
      value |= std::uint64_t{part & 0x7FU} << shift;
      if (part < 0x80) return value;
    }
    fail();
    return 0;
  }
  std::int64_t zigzag() {
    const std::uint64_t value = varint();
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false, ran_out_ = false;
};

struct SchemaElement {
  std::int64_t type = -1, repetition = 0, children = 0;
  std::string name;
};

SchemaElement read_schema_element(Thrift& thrift) {
  SchemaElement element;
  thrift.fields([&](std::int64_t id, Thrift::Type type) {
    if (id == 1) {
      element.type = thrift.number(type);
    } else if (id == 3) {
      element.repetition = thrift.number(type);
    } else if (id == 4 && type == Thrift::kBinary) {
      element.name = thrift.binary();
    } else if (id == 5) {
      element.children = thrift.number(type);
    } else {
      thrift.skip(type);
    }
  });
  return element;
}

struct RawChunk {
  std::int64_t codec = 0, values = -1, size = -1, data = -1, dictionary = -1;
  bool elsewhere = false;  // in another file
};

RawChunk read_chunk(Thrift& thrift) {
  RawChunk chunk;
  thrift.fields([&](std::int64_t id, Thrift::Type type) {
    if (id == 1) {
      chunk.elsewhere = true;
      thrift.skip(type);
    } else if (id == 3 && type == Thrift::kStruct) {
      thrift.fields([&](std::int64_t inner, Thrift::Type kind) {
        switch (inner) {
          case 4:
            chunk.codec = thrift.number(kind);
            break;
          case 5:
            chunk.values = thrift.number(kind);
            break;
          case 7:
            chunk.size = thrift.number(kind);
            break;
          case 9:
            chunk.data = thrift.number(kind);
            break;
          case 11:
            chunk.dictionary = thrift.number(kind);
            break;
          default:
            thrift.skip(kind);
        }
      });
    } else {
      thrift.skip(type);
    }
  });
  return chunk;
}

// Names that lists and maps put between a field and its elements.
bool is_list_name(const std::string& name) {
  return name == "list" || name == "element" || name == "item" || name == "array" ||
         name == "bag" || name == "array_element";
}

// The tree of columns, depth first, as a list; false when it is none.
bool walk_schema(const std::vector<SchemaElement>& elements, std::size_t& at, std::uint32_t depth,
                 ParquetColumn above, std::vector<ParquetColumn>& columns) {
  if (at == elements.size() || depth > kMaxSchemaDepth) return false;
  const SchemaElement& element = elements[at++];
  if (depth > 0) {  // the root has a name of no meaning
    above.path += (above.path.empty() ? "" : ".") + element.name;
    if (!is_list_name(element.name) || above.short_path.empty()) {
      above.short_path += (above.short_path.empty() ? "" : ".") + element.name;
    }
    if (element.repetition < 0 || element.repetition > 2) return false;
    if (element.repetition > 0) ++above.max_definition;
    if (element.repetition == 2) ++above.max_repetition;
  }
  if (element.children == 0 && depth > 0) {
    constexpr std::int64_t kByteArray = 6;
    above.strings = element.type == kByteArray;
    columns.push_back(std::move(above));
    return true;
  }
  if (element.children < 0 || element.children > static_cast<std::int64_t>(elements.size())) {
    return false;
  }
  for (std::int64_t i = 0; i < element.children; ++i) {
    if (!walk_schema(elements, at, depth + 1, above, columns)) return false;
  }
  return true;
}

}  // namespace

Result<ParquetFile> parse_parquet_metadata(std::string_view bytes, std::uint64_t file_bytes,
                                           const std::string& name) {
  Thrift thrift(bytes);
  std::vector<SchemaElement> schema;
  struct RawGroup {
    std::vector<RawChunk> chunks;
    std::int64_t rows = -1;
  };
  std::vector<RawGroup> groups;
  thrift.fields([&](std::int64_t id, Thrift::Type type) {
    if (id == 2 && type == Thrift::kList) {
      thrift.list([&](Thrift::Type element) {
        if (element != Thrift::kStruct) return thrift.fail();
        schema.push_back(read_schema_element(thrift));
      });
    } else if (id == 4 && type == Thrift::kList) {
      thrift.list([&](Thrift::Type element) {
        if (element != Thrift::kStruct) return thrift.fail();
        RawGroup& group = groups.emplace_back();
        thrift.fields([&](std::int64_t inner, Thrift::Type kind) {
          if (inner == 1 && kind == Thrift::kList) {
            thrift.list([&](Thrift::Type chunk) {
              if (chunk != Thrift::kStruct) return thrift.fail();
              group.chunks.push_back(read_chunk(thrift));
            });
          } else if (inner == 3) {
            group.rows = thrift.number(kind);
          } else {
            thrift.skip(kind);
          }
        });
      });
    } else {
      thrift.skip(type);
    }
  });
  const auto damaged = [&](const std::string& what) {
    return bad_input("{}: not a valid Parquet file: {}", name, what);
  };
  if (!thrift.ok()) return damaged("its metadata cannot be decoded");
  ParquetFile file;
  std::size_t at = 0;
  if (schema.empty() || !walk_schema(schema, at, 0, {}, file.columns) || at != schema.size()) {
    return damaged("its schema is no tree of columns");
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    RawGroup& group = groups[g];
    if (group.rows < 0 || group.chunks.size() != file.columns.size()) {
      return damaged(fmt::format("row group {} has {} columns of {}, {} rows", g,
                                 group.chunks.size(), file.columns.size(), group.rows));
    }
    ParquetRowGroup& out = file.groups.emplace_back();
    out.rows = static_cast<std::uint64_t>(group.rows);
    for (RawChunk& chunk : group.chunks) {
      // Where there are no values there are no pages, and writers say nothing of their place.
      if (chunk.values == 0) {
        chunk.dictionary = chunk.size = 0;
        chunk.data = static_cast<std::int64_t>(kMagic.size());
      }
      // The dictionary comes first, where there is one.
      const bool dictionary = chunk.dictionary > 0 && chunk.dictionary < chunk.data;
      const std::int64_t begin = dictionary ? chunk.dictionary : chunk.data;
      if (chunk.elsewhere || chunk.codec < 0 || chunk.codec > 7 || chunk.values < 0 ||
          chunk.size < 0 || begin < 4 || static_cast<std::uint64_t>(begin) > file_bytes ||
          static_cast<std::uint64_t>(chunk.size) > file_bytes - static_cast<std::uint64_t>(begin)) {
        return damaged(fmt::format("a column of row group {} lies outside the file", g));
      }
      out.chunks.push_back(
          {static_cast<ParquetCodec>(chunk.codec), static_cast<std::uint64_t>(begin),
           static_cast<std::uint64_t>(chunk.size), static_cast<std::uint64_t>(chunk.values)});
    }
  }
  return file;
}

Result<ParquetFile> read_parquet_footer(const Path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return io_error("{}: cannot open: {}", path.string(), std::strerror(errno));
  struct Close {
    int descriptor;
    ~Close() { ::close(descriptor); }
  } close{descriptor};
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) {
    return io_error("{}: cannot stat: {}", path.string(), std::strerror(errno));
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  const auto read_at = [&](std::uint64_t offset, std::string& out) {
    return ::pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(out.size());
  };
  std::string tail(8, '\0'), head(4, '\0');
  if (size < 12 || !read_at(size - 8, tail) || !read_at(0, head) || tail.substr(4) != kMagic ||
      head != kMagic) {
    return bad_input("{}: not a Parquet file, encrypted, or cut short (no PAR1 at both ends)",
                     path.string());
  }
  std::uint32_t length = 0;
  std::memcpy(&length, tail.data(), sizeof(length));
  if (length > size - 12 || length > kMaxMetadata) {
    return bad_input("{}: not a valid Parquet file: metadata of {} bytes in a file of {}",
                     path.string(), length, size);
  }
  std::string metadata(length, '\0');
  if (!read_at(size - 8 - length, metadata)) {
    return io_error("{}: read failed: {}", path.string(), std::strerror(errno));
  }
  return parse_parquet_metadata(metadata, size - 8 - length, path.string());
}

Result<std::size_t> ParquetFile::find(const std::string& path, const std::string& name) const {
  std::vector<std::string> there;
  for (const bool exact : {true, false}) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if ((exact ? columns[i].path : columns[i].short_path) != path) continue;
      if (columns[i].strings) return i;
      return bad_input("{}: column \"{}\" holds no strings", name, path);
    }
  }
  for (const ParquetColumn& column : columns) {
    if (column.strings && there.size() < 20) there.push_back(column.short_path);
  }
  return bad_input("{}: no column \"{}\"; those of strings are {}", name, path,
                   there.empty() ? "none" : join(there, ", "));
}

Result<std::optional<ParquetPage>> parse_parquet_page(std::string_view bytes, std::size_t& header,
                                                      const std::string& name) {
  Thrift thrift(bytes);
  ParquetPage page;
  std::int64_t kind = -1, uncompressed = -1, compressed = -1, values = -1;
  std::int64_t encoding = 0, definition = 3, repetition = 3;
  std::int64_t definition_bytes = 0, repetition_bytes = 0;
  bool described = false;
  thrift.fields([&](std::int64_t id, Thrift::Type type) {
    if (id == 1) {
      kind = thrift.number(type);
    } else if (id == 2) {
      uncompressed = thrift.number(type);
    } else if (id == 3) {
      compressed = thrift.number(type);
    } else if ((id == 5 || id == 7) && type == Thrift::kStruct) {
      described = true;
      thrift.fields([&](std::int64_t inner, Thrift::Type value) {
        if (inner == 1) {
          values = thrift.number(value);
        } else if (inner == 2) {
          encoding = thrift.number(value);
        } else if (inner == 3 && id == 5) {
          definition = thrift.number(value);
        } else if (inner == 4 && id == 5) {
          repetition = thrift.number(value);
        } else {
          thrift.skip(value);
        }
      });
    } else if (id == 8 && type == Thrift::kStruct) {
      described = true;
      thrift.fields([&](std::int64_t inner, Thrift::Type value) {
        if (inner == 1) {
          values = thrift.number(value);
        } else if (inner == 4) {
          encoding = thrift.number(value);
        } else if (inner == 5) {
          definition_bytes = thrift.number(value);
        } else if (inner == 6) {
          repetition_bytes = thrift.number(value);
        } else if (inner == 7 && (value == Thrift::kTrue || value == Thrift::kFalse)) {
          page.is_compressed = value == Thrift::kTrue;
        } else {
          thrift.skip(value);
        }
      });
    } else {
      thrift.skip(type);
    }
  });
  if (!thrift.ok() && thrift.ran_out()) return std::optional<ParquetPage>();
  const auto within = [](std::int64_t value, std::int64_t most) {
    return value >= 0 && value <= most;
  };
  if (!thrift.ok() || !within(kind, 3) || !within(uncompressed, INT32_MAX) ||
      !within(compressed, INT32_MAX) || !within(encoding, 9) || !within(definition, 9) ||
      !within(repetition, 9) || !within(definition_bytes, uncompressed) ||
      !within(repetition_bytes, uncompressed - definition_bytes) ||
      (kind != 1 && (!described || !within(values, INT32_MAX)))) {
    return bad_input("{}: not a valid Parquet file: the header of a page makes no sense", name);
  }
  page.kind = static_cast<ParquetPage::Kind>(kind);
  page.compressed = static_cast<std::uint32_t>(compressed);
  page.uncompressed = static_cast<std::uint32_t>(uncompressed);
  page.values = static_cast<std::uint32_t>(std::max<std::int64_t>(values, 0));
  page.encoding = static_cast<ParquetEncoding>(encoding);
  page.definition = static_cast<ParquetEncoding>(definition);
  page.repetition = static_cast<ParquetEncoding>(repetition);
  page.definition_bytes = static_cast<std::uint32_t>(definition_bytes);
  page.repetition_bytes = static_cast<std::uint32_t>(repetition_bytes);
  header = thrift.position();
  return std::optional(page);
}

}  // namespace quintet
