// Metadata and page headers of Parquet files, the levels and lengths in pages, and records of CSV
// and WARC files.
#include <sstream>

#include "base/check.h"
#include "base/files.h"
#include "data/corpus/parquet_source.h"
#include "data/corpus/parquet_values.h"
#include "tests/fuzz/fuzz.h"

using namespace quintet;  // NOLINT: a test of the whole surface

namespace {

// Bytes in memory as a file.
class Bytes final : public ByteSource {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  Result<std::size_t> read(std::span<char> out) override {
    const std::size_t some = std::min(out.size(), bytes_.size() - at_);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), some, out.begin());
    at_ += some;
    return some;
  }
  std::uint64_t consumed() const override { return at_; }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

void read_to_end(Result<std::unique_ptr<ByteSource>> source) {
  if (!source.ok()) return;
  std::string part(4096, '\0');
  for (;;) {
    const auto got = source.value()->read(part);
    if (!got.ok() || got.value() < part.size()) break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  constexpr std::uint64_t kFile = 1 << 20;
  if (const auto file = parse_parquet_metadata(bytes, kFile, "fuzz"); file.ok()) {
    for (const ParquetRowGroup& group : file.value().groups) {
      QT_CHECK(group.chunks.size() == file.value().columns.size(), "columns are missing");
      for (const ParquetChunk& chunk : group.chunks) {
        QT_CHECK(chunk.begin <= kFile && chunk.size <= kFile - chunk.begin,
                 "a column outside the file");
      }
    }
  }
  std::size_t header = 0;
  if (const auto page = parse_parquet_page(bytes, header, "fuzz"); page.ok() && page.value()) {
    QT_CHECK(header <= size, "a header beyond its bytes");
    QT_CHECK(page.value()->definition_bytes + page.value()->repetition_bytes <=
                 page.value()->uncompressed,
             "levels beyond their page");
  }
  if (size > 0) {
    HybridReader reader(bytes.substr(1), data[0] % 33);
    std::uint32_t value = 0;
    for (int i = 0; i < 1000 && reader.next(value); ++i) {
      QT_CHECK(data[0] % 33 == 32 || value >> data[0] % 33 == 0 || data[0] % 33 % 8 != 0,
               "a value of too many bits");
    }
  }
  std::vector<std::uint32_t> lengths;
  std::string_view rest = bytes;
  static_cast<void>(read_delta_lengths(rest, 10000, lengths));
  QT_CHECK(lengths.size() <= 10000, "more lengths than allowed");
  std::string out;
  for (const ParquetCodec codec : {ParquetCodec::kSnappy, ParquetCodec::kGzip, ParquetCodec::kZstd,
                                   ParquetCodec::kLz4, ParquetCodec::kLz4Framed}) {
    static_cast<void>(decompress_page(codec, bytes, 4096, "fuzz", out).ok());
  }
  read_to_end(open_separated(std::make_unique<Bytes>(bytes), "fuzz", ',', {"text", ""}));
  read_to_end(open_separated(std::make_unique<Bytes>(bytes), "fuzz", '\t', {"text", "lang"}));
  read_to_end(open_warc(std::make_unique<Bytes>(bytes), "fuzz", {"text", "lang"}));
  return 0;
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {
      "id,text,lang\n1,\"a \"\"b\"\"\nc\",de\n2,plain,en\n", "text\tlang\na b\tde\n",
      "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n"
      "WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 2\r\n\r\nab\r\n\r\n"};
  for (const char* name : {"snappy", "v2", "delta", "lists", "nested"}) {
    const auto file = read_file(Path(QUINTET_SOURCE_DIR) / "tests/data/parquet" /
                                (std::string(name) + ".parquet"));
    if (!file.ok()) continue;
    const std::string& bytes = file.value();
    std::uint32_t length = 0;
    std::memcpy(&length, bytes.data() + bytes.size() - 8, 4);
    all.push_back(bytes.substr(bytes.size() - 8 - length, length));  // the metadata
    all.push_back(bytes.substr(4, 400));                             // the first page
  }
  return all;
}
