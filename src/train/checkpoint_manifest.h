// A checkpoint's manifest: checksums of everything in its folder. It is written last; a folder
// without one, or with one that does not match, is not a checkpoint (docs/formats.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

inline constexpr const char* kCheckpointManifest = "manifest.json";

struct CheckpointManifest {
  struct File {
    std::int64_t bytes = 0;
    std::int64_t head =
        0;  // the checksum is that of the first so many bytes; tensors have their own
    std::uint64_t checksum = 0;
  };
  std::int64_t step = 0;
  std::int64_t ranks = 0;  // that wrote it
  std::int64_t block_bytes = 0;
  std::map<std::string, File> files;
  std::map<std::string, std::vector<std::uint64_t>> tensors;  // checksums of its blocks

  // JSON that holds a checksum of itself.
  std::string to_text() const;
  // Refuses every text but those that to_text() made.
  static Result<CheckpointManifest> parse(const std::string& text, const std::string& origin);
};

}  // namespace quintet
