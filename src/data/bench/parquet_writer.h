// Writes Parquet files of one column of strings, as plain as the format allows: for benchmarks and
// tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {

// A file with the column "text", in pages of about `page_bytes` compressed with zstd (level 3), and
// row groups of about `group_bytes`.
std::string parquet_file(const std::vector<std::string_view>& texts, std::size_t page_bytes,
                         std::size_t group_bytes);

}  // namespace quintet
