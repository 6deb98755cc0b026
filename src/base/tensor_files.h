// Tensors stored in a folder, in one safetensors file or in several with an index, as Hugging Face
// has them. They are read in parts, where they lie: whoever needs a slice of a weight reads that
// slice and no more than a block around it.
//
// Not thread-safe; several may be open on one folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

class TensorFiles {
 public:
  // `STEM.safetensors` if it is there, else the files that `STEM.safetensors.index.json` lists.
  // Checks the headers of all of them.
  static Result<TensorFiles> open(const Path& folder, const std::string& stem);

  struct Tensor {
    std::string dtype;  // as the file spells it
    std::vector<std::int64_t> shape;
    std::size_t file = 0;                  // in files()
    std::int64_t offset = 0, bytes = 0;    // in the file
    std::vector<std::uint64_t> checksums;  // of its blocks; none: cannot be checked
  };
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::vector<ReadableFile>& files() const { return files_; }
  const Path& folder() const { return folder_; }

  // Whether exactly these tensors are there, in types that can be read as float32. Otherwise names
  // what is missing, what has another shape, what is too much.
  struct Wanted {
    std::string name;
    std::vector<std::int64_t> shape;
  };
  Status expect(const std::vector<Wanted>& wanted) const;

  // Whether a tensor that is there is of a type that can be read as float32.
  Status check_readable(const std::string& name) const;

  // From now on a tensor has another name, or is not there.
  void rename(const std::string& from, const std::string& to);
  void leave_out(const std::string& name);

  // From now on every block of `block_bytes` that is read must have its checksum, by tensor and
  // block. Refuses checksums of other tensors than there are.
  Status check_blocks(std::int64_t block_bytes,
                      const std::map<std::string, std::vector<std::uint64_t>>& checksums);

  // Elements [first, first + values.size()) of a tensor that expect() or check_readable() found
  // good, as float32.
  Status read(const std::string& name, std::int64_t first, std::span<float> values);
  // Reads all of a tensor, for the sake of its checksums.
  Status verify(const std::string& name);
  // Bytes read so far.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  Status add_file(const Path& path);
  // Makes a block of a tensor the one at hand.
  Status fetch(const std::string& name, const Tensor& tensor, std::int64_t block);

  Path folder_;
  std::vector<ReadableFile> files_;
  std::map<std::string, Tensor> tensors_;
  std::int64_t block_bytes_ = std::int64_t{4} << 20;
  std::int64_t bytes_read_ = 0;
  // Neighbours are asked for one after the other: one block at hand is enough.
  const Tensor* at_hand_ = nullptr;
  std::int64_t block_ = -1;
  std::vector<std::byte> bytes_;
};

// The files that an index lists, each once.
Result<std::vector<std::string>> files_of_index(const std::string& text, const std::string& origin);

}  // namespace quintet
