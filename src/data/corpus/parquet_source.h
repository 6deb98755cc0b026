// The text of a Parquet file, one row group at a time, as JSON lines (record_source.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "data/corpus/parquet_format.h"
#include "data/corpus/record_source.h"

namespace quintet {

// Pages are held whole: those that are larger when decompressed are refused.
inline constexpr std::uint32_t kMaxParquetPage = 128 << 20;

// Bytes of the columns that are wanted, in one row group.
Result<std::uint64_t> parquet_group_bytes(const ParquetFile& file, std::size_t group,
                                          const RecordFields& fields, const std::string& name);

// A line for every row. Lists of strings are joined with line breaks. A row without text has a
// null.
Result<std::unique_ptr<ByteSource>> open_parquet_group(const Path& path, std::size_t group,
                                                       const RecordFields& fields);

// Decompresses a page; for tests, and for the reader. `size` is what must come out.
Status decompress_page(ParquetCodec codec, std::string_view bytes, std::size_t size,
                       const std::string& name, std::string& out);

}  // namespace quintet
