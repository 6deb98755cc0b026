// Memory maps of files that shrink, or whose disk fails, while they are read. The system sends a
// SIGBUS then, which by default ends the process without a word. Here the page reads as zeros
// instead, and whoever reads asks afterwards whether all was there.
#pragma once

#include <cstddef>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

// For MappedFile. Maps beyond the table's room are left to the system.
void watch_map(const std::byte* data, std::size_t size, const Path& path);
void forget_map(const std::byte* data);

// Ok as long as every page of a mapped file could be read; names the file otherwise, for good.
Status mapped_files_are_whole();

}  // namespace quintet
