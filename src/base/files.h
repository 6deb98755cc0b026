// Files, in one place: whole reads, memory maps, and writes that are either complete or not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace quintet {

using Path = std::filesystem::path;

Result<std::string> read_file(const Path& path);

// A read-only memory map of a whole file. Movable; unmapped when destroyed.
class MappedFile {
 public:
  static Result<MappedFile> open(const Path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file read in parts. Unlike a map it reports what cannot be read, instead of ending the process.
class ReadableFile {
 public:
  static Result<ReadableFile> open(const Path& path);
  ReadableFile(ReadableFile&& other) noexcept;
  ReadableFile& operator=(ReadableFile&&) = delete;
  ~ReadableFile();

  std::int64_t size() const { return size_; }
  const Path& path() const { return path_; }
  // Fills `bytes` from `offset` on. A file that is shorter, or a disk that cannot read there, is
  // bad input: what was stored is lost.
  Status read_at(std::int64_t offset, std::span<std::byte> bytes) const;

 private:
  ReadableFile(Path path, int descriptor, std::int64_t size);
  Path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

// Writes a file under a temporary name beside `path` and renames it into place on commit(), after
// flushing it to the disk. Destroyed without commit(), it leaves nothing behind: a reader never
// sees half a file, and an existing file survives a failed write.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const Path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  Status commit();

 private:
  AtomicFile(Path path, Path temporary, int descriptor);
  Path path_, temporary_;
  int descriptor_ = -1;
};

// AtomicFile for contents that are at hand.
Status write_file(const Path& path, std::string_view text);
Status make_directories(const Path& path);

}  // namespace quintet
