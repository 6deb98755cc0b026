#include "base/files.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mapped_fault.h"

namespace quintet {
namespace {

Error open_error(const Path& path) {
  const int cause = errno;
  if (cause == ENOENT) return bad_input("{}: no such file", path.string());
  return io_error("{}: cannot open: {}", path.string(), std::strerror(cause));
}

// Closes on scope exit; for descriptors that do not outlive a function.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// A file's size, refusing what is not a regular file (a directory opens happily and reads badly).
Result<std::size_t> regular_size(int descriptor, const Path& path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) {
    return io_error("{}: cannot stat: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return bad_input("{}: not a regular file", path.string());
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

Result<std::string> read_file(const Path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return open_error(path);
  QT_ASSIGN(const std::size_t size, regular_size(file.get(), path));
  std::string contents(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), contents.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("{}: read failed: {}", path.string(), std::strerror(errno));
    if (got == 0) return bad_input("{}: shrank while being read", path.string());
    done += static_cast<std::size_t>(got);
  }
  return contents;
}

Result<MappedFile> MappedFile::open(const Path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return open_error(path);
  QT_ASSIGN(const std::size_t size, regular_size(file.get(), path));
  MappedFile map;
  if (size == 0) return map;  // mmap refuses an empty range; an empty span says the same
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED)
    return io_error("{}: cannot map: {}", path.string(), std::strerror(errno));
  map.data_ = static_cast<const std::byte*>(data);
  map.size_ = size;
  watch_map(map.data_, size, path);
  return map;
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) forget_map(data_);
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<ReadableFile> ReadableFile::open(const Path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return open_error(path);
  QT_ASSIGN(const std::size_t size, regular_size(file.get(), path));
  return ReadableFile(path, file.release(), static_cast<std::int64_t>(size));
}

ReadableFile::ReadableFile(Path path, int descriptor, std::int64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

ReadableFile::~ReadableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status ReadableFile::read_at(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return bad_input("{}: cannot be read at byte {}: {}", path_.string(), offset,
                       std::strerror(errno));
    }
    if (got == 0) return bad_input("{}: ends at byte {}; truncated?", path_.string(), offset);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return {};
}

Result<AtomicFile> AtomicFile::create(const Path& path) {
  Path temporary = path;
  temporary += ".tmp";
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return io_error("{}: cannot create: {}", temporary.string(), std::strerror(errno));
  }
  return AtomicFile(path, std::move(temporary), descriptor);
}

AtomicFile::AtomicFile(Path path, Path temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return io_error("{}: write failed: {}", temporary_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) {
    return io_error("{}: cannot flush: {}", temporary_.string(), std::strerror(errno));
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    const int cause = errno;
    ::unlink(temporary_.c_str());
    return io_error("{}: cannot close: {}", temporary_.string(), std::strerror(cause));
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int cause = errno;
    ::unlink(temporary_.c_str());
    return io_error("{}: cannot rename into place: {}", path_.string(), std::strerror(cause));
  }
  return {};
}

Status write_file(const Path& path, std::string_view text) {
  QT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  QT_TRY(file.write(text));
  return file.commit();
}

Status make_directories(const Path& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) return io_error("{}: cannot create: {}", path.string(), failure.message());
  return {};
}

}  // namespace quintet
