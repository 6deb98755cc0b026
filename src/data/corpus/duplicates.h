// Finds the documents that occur more than once, in bounded memory. Fingerprints of 128 bits go to
// many files on the disk by their first bits; each is then sorted by itself. Of equal documents the
// first stays.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/buffer.h"
#include "base/file_store.h"
#include "base/result.h"

namespace quintet {

struct Fingerprint {
  std::uint64_t high = 0, low = 0;

  auto operator<=>(const Fingerprint&) const = default;
};
Fingerprint fingerprint_of(std::string_view text);

// A document by its place in the order of the corpus: the number of its block, and its number
// there.
struct DocumentPlace {
  std::uint64_t block = 0;
  std::uint32_t index = 0;
};

// Keeps its files in a folder of its own. For one thread.
class DuplicateFinder {
 public:
  // `partitions`: over how many files the fingerprints are spread.
  DuplicateFinder(FileStore& files, Path folder, std::size_t partitions);
  // So many that each is sorted in some 100 MiB, unless documents are unusually short.
  static std::size_t partitions_for(std::uint64_t input_bytes);

  // Continues from what flush() returned.
  Status resume(const std::vector<std::uint64_t>& sizes);
  Status add(const Fingerprint& fingerprint, const DocumentPlace& place);
  // Hands everything to the files. Returns their sizes.
  Result<std::vector<std::uint64_t>> flush();

  // After the last one: writes the places of all documents to be left out. Can be called again
  // after it failed or was interrupted.
  Status find();
  // Removes all files.
  Status clean();

 private:
  struct Record {
    Fingerprint fingerprint;
    std::uint64_t place;
  };
  Path partition_path(std::size_t partition) const;

  FileStore* files_;
  Path folder_;
  std::vector<Buffer<Record>> partitions_;
  std::vector<std::uint64_t> sizes_;
  std::vector<bool> unsynced_;
};

// Reads what DuplicateFinder::find() wrote, block by block in ascending order.
class DuplicateList {
 public:
  DuplicateList() = default;  // no duplicates
  explicit DuplicateList(Path folder) : folder_(std::move(folder)) {}

  // The documents of a block to leave out, in ascending order.
  Result<std::vector<std::uint32_t>> in_block(std::uint64_t block);

 private:
  Path folder_;
  std::uint64_t loaded_ = UINT64_MAX;  // which file
  std::vector<std::uint64_t> places_;  // of it, sorted
};

}  // namespace quintet
