// A FileStore that works until it does not: from one operation on everything fails, as on a full
// disk or when the process is killed. A failing append leaves half of its bytes.
#pragma once

#include <atomic>
#include <memory>

#include "base/file_store.h"

namespace quintet {

class FaultyStore final : public FileStore {
 public:
  // The operation with this number, from 0, is the first to fail.
  explicit FaultyStore(std::int64_t first_failure) : first_failure_(first_failure) {}

  std::int64_t operations() const { return operations_; }

  Status append(const Path& path, std::span<const std::byte> bytes) override {
    const std::int64_t number = operations_++;
    if (number < first_failure_) return local_files().append(path, bytes);
    if (number == first_failure_) {
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
  Status create(const Path& path, std::int64_t size) override {
    return failing() ? full(path) : local_files().create(path, size);
  }
  Result<std::unique_ptr<PlacedFile>> open(const Path& path) override {
    QT_ASSIGN(auto file, local_files().open(path));
    return std::unique_ptr<PlacedFile>(std::make_unique<Placed>(*this, path, std::move(file)));
  }
  Status make_folder(const Path& path) override {
    return failing() ? full(path) : local_files().make_folder(path);
  }
  Status sync_folder(const Path& path) override {
    return failing() ? full(path) : local_files().sync_folder(path);
  }
  Status remove_folder(const Path& path) override {
    return failing() ? full(path) : local_files().remove_folder(path);
  }
  Result<std::int64_t> free_bytes(const Path& folder) override {
    return local_files().free_bytes(folder);
  }

 private:
  class Placed final : public PlacedFile {
   public:
    Placed(FaultyStore& store, Path path, std::unique_ptr<PlacedFile> file)
        : store_(store), path_(std::move(path)), file_(std::move(file)) {}
    Status write_at(std::int64_t offset, std::span<const std::byte> bytes) override {
      const std::int64_t number = store_.operations_++;
      if (number < store_.first_failure_) return file_->write_at(offset, bytes);
      if (number == store_.first_failure_)
        QT_TRY(file_->write_at(offset, bytes.first(bytes.size() / 2)));
      return full(path_);
    }
    Status sync() override { return store_.failing() ? full(path_) : file_->sync(); }

   private:
    FaultyStore& store_;
    const Path path_;
    const std::unique_ptr<PlacedFile> file_;
  };
  bool failing() { return operations_++ >= first_failure_; }
  static Status full(const Path& path) {
    return io_error("{}: writing failed: No space left on device", path.string());
  }
  const std::int64_t first_failure_;
  std::atomic<std::int64_t> operations_{0};  // threads may write at one time
};

}  // namespace quintet
