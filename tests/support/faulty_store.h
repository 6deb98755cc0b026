// A FileStore that works until it does not: from one operation on everything fails, as on a full
// disk or when the process is killed. A failing append leaves half of its bytes.
#pragma once

#include "base/file_store.h"

namespace quintet {

class FaultyStore final : public FileStore {
 public:
  // The operation with this number, from 0, is the first to fail.
  explicit FaultyStore(std::int64_t first_failure) : first_failure_(first_failure) {}

  std::int64_t operations() const { return operations_; }

  Status append(const Path& path, std::span<const std::byte> bytes) override {
    if (!failing()) return local_files().append(path, bytes);
    if (operations_ == first_failure_ + 1) {
      QT_TRY(local_files().append(path, bytes.first(bytes.size() / 2)));
    }
    return full(path);
  }
  Status truncate(const Path& path, std::uint64_t size) override {
    return failing() ? full(path) : local_files().truncate(path, size);
  }
  Status sync(const Path& path) override {
    return failing() ? full(path) : local_files().sync(path);
  }
  Status rename(const Path& from, const Path& to) override {
    return failing() ? full(from) : local_files().rename(from, to);
  }
  Status remove(const Path& path) override {
    return failing() ? full(path) : local_files().remove(path);
  }
  Status replace(const Path& path, std::string_view contents) override {
    return failing() ? full(path) : local_files().replace(path, contents);
  }

 private:
  bool failing() { return operations_++ >= first_failure_; }
  static Status full(const Path& path) {
    return io_error("{}: writing failed: No space left on device", path.string());
  }
  std::int64_t first_failure_, operations_ = 0;
};

}  // namespace quintet
