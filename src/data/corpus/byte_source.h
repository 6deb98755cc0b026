// The bytes of an input file, decompressed on the fly: plain, .gz, .zst, .xz or .bz2, each of any
// number of members, frames or streams. Memory does not depend on the file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Opens by the file's extension. "-": standard input, as it is.
  static Result<std::unique_ptr<ByteSource>> open(const Path& path);
  // The file as it is.
  static Result<std::unique_ptr<ByteSource>> open_plain(const Path& path);

  // Fills as much of `out` as there is; less than all of it only at the end. A file that ends in
  // the middle of a compressed stream is an error.
  virtual Result<std::size_t> read(std::span<char> out) = 0;
  // Passes over so many decompressed bytes. Unless a source knows better, by reading them.
  virtual Status skip(std::uint64_t bytes);
  // Bytes of the file itself consumed so far.
  virtual std::uint64_t consumed() const = 0;
};

// The endings that compressed files have: ".gz" and so on; empty: none of them. Capitals count as
// small letters.
std::string compression_of(const Path& path);

}  // namespace quintet
