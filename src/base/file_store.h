// Where long jobs write: files that grow at their end, files of a known size that several ranks and
// threads fill, and small ones replaced whole. Everything such a job writes goes through this
// interface, so that tests can make any single write fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

// A file of a known size, open for writing at any place. Threads may write different places at one
// time.
class PlacedFile {
 public:
  virtual ~PlacedFile() = default;
  virtual Status write_at(std::int64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns when what was written is on the disk.
  virtual Status sync() = 0;
};

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

  // Makes an empty file of a size, its space reserved where the file system can do that.
  virtual Status create(const Path& path, std::int64_t size) = 0;
  // Opens such a file, which another rank may have made.
  virtual Result<std::unique_ptr<PlacedFile>> open(const Path& path) = 0;
  // With its parents; it is no error if it is there.
  virtual Status make_folder(const Path& path) = 0;
  // Returns when the names in a folder are on the disk: what was made, renamed and removed there.
  virtual Status sync_folder(const Path& path) = 0;
  // With all that is in it; it is no error if it is not there.
  virtual Status remove_folder(const Path& path) = 0;
  // What can still be written below a folder.
  virtual Result<std::int64_t> free_bytes(const Path& folder) = 0;
};

// The file system.
FileStore& local_files();

}  // namespace quintet
