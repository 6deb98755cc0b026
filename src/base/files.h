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
