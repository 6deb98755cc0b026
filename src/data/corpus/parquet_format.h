// The parts of a Parquet file that tell where its strings are: the footer's metadata and the
// headers of pages, in Thrift's compact encoding. That encoding is decoded here, in some hundred
// lines that check every length against what is there: libthrift would decode into its own classes,
// needs generated code, and trusts sizes that hostile files choose.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

enum class ParquetCodec : std::uint8_t {
  kNone = 0,
  kSnappy = 1,
  kGzip = 2,
  kLzo = 3,
  kBrotli = 4,
  kLz4Framed = 5,  // Hadoop's framing
  kZstd = 6,
  kLz4 = 7,
};

enum class ParquetEncoding : std::uint8_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kDeltaBinaryPacked = 5,
  kDeltaLengthByteArray = 6,
  kDeltaByteArray = 7,
  kRleDictionary = 8,
};

// A column, in the order in which row groups have them.
struct ParquetColumn {
  std::string path;        // names from the outermost to its own, with dots
  std::string short_path;  // the same without the names that lists put between
  bool strings = false;    // byte arrays; nothing else can be read
  std::uint32_t max_definition = 0, max_repetition = 0;
};

struct ParquetChunk {
  ParquetCodec codec = ParquetCodec::kNone;
  std::uint64_t begin = 0, size = 0;  // in the file, dictionary included
  std::uint64_t values = 0;           // nulls included
};

struct ParquetRowGroup {
  std::uint64_t rows = 0;
  std::vector<ParquetChunk> chunks;  // by column
};

struct ParquetFile {
  std::vector<ParquetColumn> columns;
  std::vector<ParquetRowGroup> groups;

  // The column of that path; fails with the names there are. What is not a string is refused.
  Result<std::size_t> find(const std::string& path, const std::string& name) const;
};

// Reads the footer; `name` is how errors call the file. Everything is checked against the file's
// size: chunks lie inside it.
Result<ParquetFile> read_parquet_footer(const Path& path);
// The same from the metadata itself.
Result<ParquetFile> parse_parquet_metadata(std::string_view bytes, std::uint64_t file_bytes,
                                           const std::string& name);

struct ParquetPage {
  enum class Kind : std::uint8_t { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
  Kind kind = Kind::kData;
  std::uint32_t compressed = 0, uncompressed = 0;  // bytes
  std::uint32_t values = 0;                        // nulls included
  ParquetEncoding encoding = ParquetEncoding::kPlain, definition = ParquetEncoding::kRle,
                  repetition = ParquetEncoding::kRle;
  // Of version 2: bytes of the levels, which are never compressed, and whether the rest is.
  std::uint32_t definition_bytes = 0, repetition_bytes = 0;
  bool is_compressed = true;
};

// Parses the header at the beginning of `bytes`; `header` becomes its size. Nothing: more bytes are
// needed.
Result<std::optional<ParquetPage>> parse_parquet_page(std::string_view bytes, std::size_t& header,
                                                      const std::string& name);

}  // namespace quintet
