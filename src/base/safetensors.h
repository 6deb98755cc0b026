// The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes. The reader
// trusts nothing: a file is either entirely sound or refused with the reason, before any tensor is
// used.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/files.h"
#include "base/result.h"

namespace quintet {

// What stands before the tensors' bytes.
struct SafetensorsHeader {
  struct Tensor {
    std::string dtype;  // as the file spells it: "F32", "BF16", ...
    std::vector<std::int64_t> shape;
    std::int64_t begin = 0, end = 0;  // bytes of the data, which follow the header
  };
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  // How long the JSON text is that follows the first 8 bytes, which are `begin`.
  static Result<std::int64_t> length(std::span<const std::byte> begin, std::int64_t file_size,
                                     const std::string& origin);
  // Checks everything: every dtype, shape and offset, that tensors neither overlap nor leave gaps,
  // that no name is twice, that nothing follows the last tensor. `origin` names it in errors.
  static Result<SafetensorsHeader> parse(std::string_view text, std::int64_t data_size,
                                         const std::string& origin);
};

struct SafetensorsItem {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  // How the file spells the type, where it is one of the same size that programs do not have: F16.
  const char* spelled = nullptr;
  std::int64_t bytes() const {
    std::int64_t bytes = size_of(dtype);
    for (const std::int64_t dim : shape) bytes *= dim;
    return bytes;
  }
};

// All that stands before the bytes of these tensors, which lie in the same order. Its length is a
// multiple of `alignment`.
std::string safetensors_header(const std::vector<SafetensorsItem>& items,
                               const std::map<std::string, std::string>& metadata,
                               std::size_t alignment = 8);

struct SafetensorsEntry {
  std::string dtype;  // as the file spells it: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // into the mapped file
};

class Safetensors {
 public:
  // Maps the file and checks the header.
  static Result<Safetensors> open(const Path& path);
  // The same on bytes at hand, which must outlive the result. `origin` names them in errors.
  static Result<Safetensors> parse(std::span<const std::byte> file, const std::string& origin);

  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& origin() const { return origin_; }

  // Whether a tensor is there, of that shape and a floating type we read.
  Status check_float(const std::string& name, const std::vector<std::int64_t>& shape) const;
  // Its values as float32; checked first.
  Result<std::vector<float>> read_float(const std::string& name,
                                        const std::vector<std::int64_t>& shape) const;
  // Elements [first, first + values.size()) of a tensor that check_float() found good.
  void copy_floats(const std::string& name, std::int64_t first, std::span<float> values) const;

 private:
  Safetensors() = default;
  std::string origin_;
  std::vector<MappedFile> file_;  // none or one; keeps the bytes alive
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file tensor by tensor, so that no more than one needs to be in memory. Declare all, then
// append the bytes of each in the same order, then commit.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const Path& path,
                                          const std::vector<SafetensorsItem>& items,
                                          const std::map<std::string, std::string>& metadata);
  Status append(std::span<const std::byte> bytes);
  // Refuses when fewer bytes were appended than declared. Before this, the file does not exist.
  Status commit();

 private:
  SafetensorsWriter(AtomicFile file, std::int64_t expected)
      : file_(std::move(file)), expected_(expected) {}
  AtomicFile file_;
  std::int64_t expected_ = 0, appended_ = 0;
};

}  // namespace quintet
