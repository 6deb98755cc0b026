#include "data/corpus/byte_source.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <vector>

#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/text.h"

namespace quintet {
namespace {

constexpr std::size_t kChunk = 256 << 10;
// zstd's own default limit, what --ultra and --long=27 need at most. More would not stay within the
// memory we promise.
constexpr int kZstdWindowLog = 27;

// The file as it lies on the disk.
class PlainSource final : public ByteSource {
 public:
  PlainSource(Path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  PlainSource(const PlainSource&) = delete;
  PlainSource& operator=(const PlainSource&) = delete;
  ~PlainSource() override {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }

  Result<std::size_t> read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = ::read(descriptor_, out.data() + done, out.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return io_error("{}: read failed: {}", path_.string(), std::strerror(errno));
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    consumed_ += done;
    return done;
  }
  Status skip(std::uint64_t bytes) override {
    if (::lseek(descriptor_, static_cast<off_t>(bytes), SEEK_CUR) < 0) {
      if (errno == ESPIPE) return ByteSource::skip(bytes);
      return io_error("{}: seek failed: {}", path_.string(), std::strerror(errno));
    }
    consumed_ += bytes;
    return {};
  }
  std::uint64_t consumed() const override { return consumed_; }
  const Path& path() const { return path_; }

 private:
  Path path_;
  int descriptor_;
  std::uint64_t consumed_ = 0;
};

// What decompressors share: a window onto the file.
class CompressedSource : public ByteSource {
 public:
  explicit CompressedSource(std::unique_ptr<PlainSource> file)
      : file_(std::move(file)), input_(kChunk) {}

  std::uint64_t consumed() const override { return file_->consumed() - (end_ - begin_); }

 protected:
  // Makes input available; false at the end of the file.
  Result<bool> fill() {
    if (begin_ < end_) return true;
    QT_ASSIGN(end_, file_->read(input_));
    begin_ = 0;
    return end_ > 0;
  }
  std::string path() const { return file_->path().string(); }
  Error truncated() const {
    return bad_input("{}: ends in the middle of its compressed data; it was cut short", path());
  }

  std::unique_ptr<PlainSource> file_;
  std::vector<char> input_;
  std::size_t begin_ = 0, end_ = 0;  // of what is not yet decompressed
};

class GzipSource final : public CompressedSource {
 public:
  explicit GzipSource(std::unique_ptr<PlainSource> file) : CompressedSource(std::move(file)) {
    constexpr int kGzipOnly = 16;
    if (::inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }

  Result<std::size_t> read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      QT_ASSIGN(const bool more, fill());
      if (!more) {
        if (inside_ || consumed() == 0) return truncated();
        break;
      }
      if (!inside_) ::inflateReset(&stream_);  // a file may be several members, one after the other
      inside_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(input_.data() + begin_);
      stream_.avail_in = static_cast<uInt>(end_ - begin_);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = static_cast<uInt>(std::min(out.size() - done, std::size_t{1} << 30));
      const uInt room = stream_.avail_out;
      const int status = ::inflate(&stream_, Z_NO_FLUSH);
      begin_ = end_ - stream_.avail_in;
      done += room - stream_.avail_out;
      if (status == Z_STREAM_END) {
        inside_ = false;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        return bad_input("{}: not valid gzip data: {}", path(),
                         stream_.msg != nullptr ? stream_.msg : "unexpected end");
      }
    }
    return done;
  }

 private:
  z_stream stream_{};
  bool inside_ = false;  // a member
};

class ZstdSource final : public CompressedSource {
 public:
  explicit ZstdSource(std::unique_ptr<PlainSource> file)
      : CompressedSource(std::move(file)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kZstdWindowLog);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  Result<std::size_t> read(std::span<char> out) override {
    ZSTD_outBuffer output = {out.data(), out.size(), 0};
    while (output.pos < output.size) {
      QT_ASSIGN(const bool more, fill());
      if (!more && consumed() == 0) return truncated();
      if (!more && !inside_) break;
      ZSTD_inBuffer input = {input_.data(), end_, begin_};
      const std::size_t before = output.pos;
      const std::size_t status = ZSTD_decompressStream(stream_, &output, &input);
      begin_ = input.pos;
      if (ZSTD_isError(status)) {
        if (ZSTD_getErrorCode(status) == ZSTD_error_frameParameter_windowTooLarge) {
          return bad_input(
              "{}: needs a window of more than {} to decompress; compress it again without --long",
              path(), human_bytes(static_cast<double>(1u << kZstdWindowLog)));
        }
        return bad_input("{}: not valid zstd data: {}", path(), ZSTD_getErrorName(status));
      }
      inside_ = status != 0;
      // Without input the stream can only give what it still holds.
      if (!more && inside_ && output.pos == before) return truncated();
    }
    return output.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool inside_ = false;  // a frame, or what is left to hand out of one
};

class XzSource final : public CompressedSource {
 public:
  // Streams that need more to decompress are refused: xz -9 takes 65 MiB.
  static constexpr std::uint64_t kMemory = std::uint64_t{128} << 20;

  explicit XzSource(std::unique_ptr<PlainSource> file) : CompressedSource(std::move(file)) {
    if (::lzma_stream_decoder(&stream_, kMemory, LZMA_CONCATENATED) != LZMA_OK) {
      throw std::bad_alloc();
    }
  }
  ~XzSource() override { ::lzma_end(&stream_); }

  Result<std::size_t> read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_out = out.size();
    while (!ended_ && stream_.avail_out > 0) {
      QT_ASSIGN(const bool more, fill());
      stream_.next_in = reinterpret_cast<const std::uint8_t*>(input_.data() + begin_);
      stream_.avail_in = end_ - begin_;
      const lzma_ret status = ::lzma_code(&stream_, more ? LZMA_RUN : LZMA_FINISH);
      begin_ = end_ - stream_.avail_in;
      if (status == LZMA_STREAM_END) {
        ended_ = true;
      } else if (status == LZMA_MEMLIMIT_ERROR) {
        return bad_input("{}: needs more than {} of memory to decompress; compress it again",
                         path(), human_bytes(static_cast<double>(kMemory)));
      } else if (status == LZMA_BUF_ERROR) {
        return truncated();
      } else if (status != LZMA_OK) {
        return bad_input("{}: not valid xz data (code {})", path(), static_cast<int>(status));
      }
    }
    return out.size() - stream_.avail_out;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ended_ = false;
};

class Bzip2Source final : public CompressedSource {
 public:
  explicit Bzip2Source(std::unique_ptr<PlainSource> file) : CompressedSource(std::move(file)) {}
  ~Bzip2Source() override {
    if (inside_) ::BZ2_bzDecompressEnd(&stream_);
  }

  Result<std::size_t> read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      QT_ASSIGN(const bool more, fill());
      if (!more) {
        if (inside_ || consumed() == 0) return truncated();
        break;
      }
      if (!inside_) {  // a file may be several streams, one after the other
        stream_ = {};
        if (::BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
        inside_ = true;
      }
      stream_.next_in = input_.data() + begin_;
      stream_.avail_in = static_cast<unsigned>(end_ - begin_);
      const std::size_t room = std::min(out.size() - done, std::size_t{1} << 30);
      stream_.next_out = out.data() + done;
      stream_.avail_out = static_cast<unsigned>(room);
      const int status = ::BZ2_bzDecompress(&stream_);
      begin_ = end_ - stream_.avail_in;
      done += room - stream_.avail_out;
      if (status == BZ_STREAM_END) {
        ::BZ2_bzDecompressEnd(&stream_);
        inside_ = false;
      } else if (status != BZ_OK) {
        return bad_input("{}: not valid bzip2 data (code {})", path(), status);
      }
    }
    return done;
  }

 private:
  bz_stream stream_{};
  bool inside_ = false;  // a stream
};

Result<std::unique_ptr<PlainSource>> open_file(const Path& path) {
  const int descriptor = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int cause = errno;
    if (cause == ENOENT) return bad_input("{}: no such file", path.string());
    return io_error("{}: cannot open: {}", path.string(), std::strerror(cause));
  }
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::make_unique<PlainSource>(path, descriptor);
}

}  // namespace

Result<std::unique_ptr<ByteSource>> ByteSource::open_plain(const Path& path) {
  QT_ASSIGN(std::unique_ptr<ByteSource> source, open_file(path));
  return source;
}

Result<std::unique_ptr<ByteSource>> ByteSource::open(const Path& path) {
  QT_ASSIGN(std::unique_ptr<PlainSource> file, open_file(path));
  std::unique_ptr<ByteSource> source;
  const std::string compression = compression_of(path);
  if (compression == ".gz") {
    source = std::make_unique<GzipSource>(std::move(file));
  } else if (compression == ".zst") {
    source = std::make_unique<ZstdSource>(std::move(file));
  } else if (compression == ".xz") {
    source = std::make_unique<XzSource>(std::move(file));
  } else if (compression == ".bz2") {
    source = std::make_unique<Bzip2Source>(std::move(file));
  } else {
    source = std::move(file);
  }
  return source;
}

Status ByteSource::skip(std::uint64_t bytes) {
  std::vector<char> sink(kChunk);
  while (bytes > 0) {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, sink.size()));
    QT_ASSIGN(const std::size_t got, read(std::span(sink).first(want)));
    if (got == 0) return bad_input("an input has become shorter since it was first read");
    bytes -= got;
  }
  return {};
}

std::string compression_of(const Path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* known : {".gz", ".zst", ".xz", ".bz2"}) {
    if (extension == known) return known;
  }
  return "";
}

}  // namespace quintet
