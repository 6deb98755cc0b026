// A FileStore on a machine that loses power: from one operation on everything fails, and then what
// was not flushed is lost. Nothing is really flushed, so that thousands of crashes take no time.
#pragma once

#include <atomic>
#include <fstream>
#include <functional>
#include <mutex>
#include <vector>

#include "base/file_store.h"

namespace quintet {

class CrashingStore final : public FileStore {
 public:
  // What a file system may have done by itself with names that were not flushed.
  enum class Names { kKept, kLost };

  // The operation with this number, from 0, is the first that does not happen. `trash` keeps what
  // was removed, until its removal is flushed.
  CrashingStore(std::int64_t first_failure, Path trash)
      : first_failure_(first_failure), trash_(std::move(trash)) {}

  std::int64_t operations() const { return operations_; }

  // What the disk holds after the power is back.
  void lose_power(Names names) {
    for (const Unflushed& u : unflushed_) {
      // A file that was renamed or removed since is found by its new name.
      std::fstream file(current(u.path), std::ios::in | std::ios::out | std::ios::binary);
      if (!file) continue;
      file.seekp(u.offset);
      file << std::string(u.size, '\0');
    }
    if (names == Names::kKept) return;
    for (std::size_t i = undo_.size(); i-- > 0;) undo_[i].action();
  }

  Status append(const Path& path, std::span<const std::byte>) override { return dead(path); }
  Status truncate(const Path& path, std::uint64_t) override { return dead(path); }
  Status sync(const Path& path) override { return dead(path); }
  Status remove(const Path& path) override { return dead(path); }

  Status rename(const Path& from, const Path& to) override {
    if (failing()) return dead(from);
    std::filesystem::rename(from, to);
    const std::lock_guard lock(mutex_);
    renamed_.emplace_back(from, to);
    undo_.push_back({from.parent_path(), [this, from, to] {
                       std::filesystem::rename(to, from);
                       renamed_.emplace_back(to, from);
                     }});
    return {};
  }
  Status replace(const Path& path, std::string_view contents) override {
    if (failing()) return dead(path);
    std::ofstream(path, std::ios::binary) << contents;
    note_new(path);
    return {};
  }
  Status create(const Path& path, std::int64_t size) override {
    if (failing()) return dead(path);
    std::ofstream(path, std::ios::binary).flush();
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size));
    note_new(path);
    return {};
  }
  Result<std::unique_ptr<PlacedFile>> open(const Path& path) override {
    return std::unique_ptr<PlacedFile>(std::make_unique<Placed>(*this, path));
  }
  Status make_folder(const Path& path) override {
    if (failing()) return dead(path);
    std::filesystem::create_directories(path);
    note_new(path);
    return {};
  }
  Status sync_folder(const Path& path) override {
    if (failing()) return dead(path);
    const std::lock_guard lock(mutex_);
    std::erase_if(undo_, [&](const Undo& undo) { return undo.folder == path; });
    return {};
  }
  Status remove_folder(const Path& path) override {
    if (!std::filesystem::exists(path)) return {};
    const bool now_dead = failing();
    if (now_dead && operations_ != first_failure_ + 1) return dead(path);
    if (now_dead) {  // half of it is gone
      std::vector<Path> files;
      for (const auto& entry : std::filesystem::directory_iterator(path))
        files.push_back(entry.path());
      for (std::size_t i = 0; i < files.size(); i += 2) std::filesystem::remove_all(files[i]);
      return dead(path);
    }
    const Path kept =
        trash_ / fmt::format("{}-{}", static_cast<const void*>(this), operations_.load());
    std::filesystem::rename(path, kept);
    const std::lock_guard lock(mutex_);
    undo_.push_back({path.parent_path(), [path, kept] { std::filesystem::rename(kept, path); }});
    return {};
  }
  Result<std::int64_t> free_bytes(const Path& folder) override {
    return local_files().free_bytes(folder);
  }

 private:
  struct Unflushed {
    Path path;
    std::int64_t offset;
    std::size_t size;
  };
  struct Undo {
    Path folder;
    std::function<void()> action;
  };
  class Placed final : public PlacedFile {
   public:
    Placed(CrashingStore& store, Path path) : store_(store), path_(std::move(path)) {}
    Status write_at(std::int64_t offset, std::span<const std::byte> bytes) override {
      const std::int64_t number = store_.operations_++;
      if (number > store_.first_failure_) return dead(path_);
      // The last one gets half of its bytes through.
      const auto some = number == store_.first_failure_ ? bytes.first(bytes.size() / 2) : bytes;
      std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(offset);
      file.write(reinterpret_cast<const char*>(some.data()),
                 static_cast<std::streamsize>(some.size()));
      const std::lock_guard lock(store_.mutex_);
      store_.unflushed_.push_back({path_, offset, some.size()});
      return number == store_.first_failure_ ? dead(path_) : Status();
    }
    Status sync() override {
      if (store_.failing()) return dead(path_);
      const std::lock_guard lock(store_.mutex_);
      std::erase_if(store_.unflushed_, [&](const Unflushed& u) { return u.path == path_; });
      return {};
    }

   private:
    CrashingStore& store_;
    const Path path_;
  };

  bool failing() { return operations_++ >= first_failure_; }
  static Status dead(const Path& path) {
    return io_error("{}: writing failed: the power is gone", path.string());
  }
  void note_new(const Path& path) {
    const std::lock_guard lock(mutex_);
    undo_.push_back(
        {path.parent_path(), [this, path] { std::filesystem::remove_all(current(path)); }});
  }
  // Where a file is now that was written under this name.
  Path current(Path path) const {
    for (const auto& [from, to] : renamed_) {
      if (path.parent_path() == from) path = to / path.filename();
    }
    return path;
  }

  const std::int64_t first_failure_;
  const Path trash_;
  std::atomic<std::int64_t> operations_{0};
  std::mutex mutex_;
  std::vector<Unflushed> unflushed_;
  std::vector<Undo> undo_;
  std::vector<std::pair<Path, Path>> renamed_;
};

}  // namespace quintet
