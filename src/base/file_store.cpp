#include "base/file_store.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace quintet {
namespace {

Error failed(const Path& path, const char* what) {
  return io_error("{}: {} failed: {}", path.string(), what, std::strerror(errno));
}

class OpenFile {
 public:
  OpenFile(const Path& path, int flags)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile(OpenFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  bool ok() const { return descriptor_ >= 0; }
  // Some file systems report a full disk only here.
  bool close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

class LocalPlacedFile final : public PlacedFile {
 public:
  LocalPlacedFile(Path path, OpenFile file) : path_(std::move(path)), file_(std::move(file)) {}

  Status write_at(std::int64_t offset, std::span<const std::byte> bytes) override {
    const std::int64_t begin = offset;
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(file_.get(), bytes.data(), bytes.size(), offset);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return failed(path_, "writing");
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      offset += put;
    }
#if defined(__linux__)
    // The disk begins at once, instead of when memory is full of what it should have. A wish: the
    // flush at the end is what counts.
    ::sync_file_range(file_.get(), begin, offset - begin, SYNC_FILE_RANGE_WRITE);
#endif
    return {};
  }

  Status sync() override {
    if (::fsync(file_.get()) != 0) return failed(path_, "flushing");
    return {};
  }

 private:
  const Path path_;
  OpenFile file_;
};

// Files are opened for each operation: a corpus of a thousand languages has more files growing at
// one time than a process may hold open, and appends are large.
class LocalFiles final : public FileStore {
 public:
  Status append(const Path& path, std::span<const std::byte> bytes) override {
    OpenFile file(path, O_WRONLY | O_CREAT | O_APPEND);
    if (!file.ok()) return failed(path, "opening to append");
    while (!bytes.empty()) {
      const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return failed(path, "writing");
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    if (!file.close()) return failed(path, "closing");
    return {};
  }

  Status truncate(const Path& path, std::uint64_t size) override {
    OpenFile file(path, size == 0 ? O_WRONLY | O_CREAT : O_WRONLY);
    if (!file.ok()) return failed(path, "opening to truncate");
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return failed(path, "stat");
    if (static_cast<std::uint64_t>(info.st_size) < size) {
      return bad_input("{}: has {} bytes, {} were written", path.string(), info.st_size, size);
    }
    if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return failed(path, "truncating");
    return {};
  }

  Status sync(const Path& path) override {
    const OpenFile file(path, O_RDONLY);
    if (!file.ok()) return failed(path, "opening to flush");
    if (::fsync(file.get()) != 0) return failed(path, "flushing");
    return {};
  }

  Status rename(const Path& from, const Path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return failed(from, "renaming");
    return {};
  }

  Status remove(const Path& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return failed(path, "removing");
    return {};
  }

  Status replace(const Path& path, std::string_view contents) override {
    return write_file(path, contents);
  }

  Status create(const Path& path, std::int64_t size) override {
    OpenFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.ok()) return failed(path, "creating");
    if (size > 0 && ::fallocate(file.get(), 0, 0, size) != 0) {
      if (errno != EOPNOTSUPP && errno != ENOSYS) return failed(path, "reserving space");
      if (::ftruncate(file.get(), size) != 0) return failed(path, "setting the size");
    }
    if (!file.close()) return failed(path, "closing");
    return {};
  }

  Result<std::unique_ptr<PlacedFile>> open(const Path& path) override {
    OpenFile file(path, O_WRONLY);
    if (!file.ok()) return failed(path, "opening to write");
    return std::unique_ptr<PlacedFile>(std::make_unique<LocalPlacedFile>(path, std::move(file)));
  }

  Status make_folder(const Path& path) override { return make_directories(path); }

  Status sync_folder(const Path& path) override {
    const OpenFile folder(path, O_RDONLY | O_DIRECTORY);
    if (!folder.ok()) return failed(path, "opening to flush");
    if (::fsync(folder.get()) != 0) return failed(path, "flushing");
    return {};
  }

  Status remove_folder(const Path& path) override {
    std::error_code failure;
    std::filesystem::remove_all(path, failure);
    if (failure) return io_error("{}: removing failed: {}", path.string(), failure.message());
    return {};
  }

  Result<std::int64_t> free_bytes(const Path& folder) override {
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) != 0) return failed(folder, "asking for free space");
    return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
  }
};

}  // namespace

FileStore& local_files() {
  static LocalFiles files;
  return files;
}

}  // namespace quintet
