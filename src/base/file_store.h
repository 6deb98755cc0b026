// Where long jobs write: files that grow at their end, and small ones replaced whole. Everything
// such a job writes goes through this interface, so that tests can make any single write fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

class FileStore {
 public:
  virtual ~FileStore() = default;

  // Adds to the end of a file, creating it if need be. After a failure the file may hold a part of
  // the bytes: whoever continues must truncate it to what was known to be there.
  virtual Status append(const Path& path, std::span<const std::byte> bytes) = 0;
  // Cuts a file, which must have at least that size. A size of zero may also create it.
  virtual Status truncate(const Path& path, std::uint64_t size) = 0;
  // Returns when what was appended is on the disk.
  virtual Status sync(const Path& path) = 0;
  virtual Status rename(const Path& from, const Path& to) = 0;
  // It is no error if the file is not there.
  virtual Status remove(const Path& path) = 0;
  // Writes a whole file, or leaves the old one.
  virtual Status replace(const Path& path, std::string_view contents) = 0;
};

// The file system.
FileStore& local_files();

}  // namespace quintet
