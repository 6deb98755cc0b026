#include "data/bench/parquet_writer.h"

#include <zstd.h>

#include "base/check.h"

namespace quintet {
namespace {

// Thrift's compact encoding, as far as it is needed.
class ThriftWriter {
 public:
  void number(int id, std::int64_t value, bool wide) {
    field(id, wide ? 6 : 5);
    zigzag(value);
  }
  void text(int id, std::string_view value) {
    field(id, 8);
    binary(value);
  }
  void begin_struct(int id) {
    field(id, 12);
    last_.push_back(0);
  }
  void begin_element() { last_.push_back(0); }  // a struct in a list
  void end_struct() {
    out += '\0';
    last_.pop_back();
  }
  void begin_list(int id, std::size_t size, int type) {
    field(id, 9);
    if (size < 15) {
      out += static_cast<char>(size << 4 | static_cast<unsigned>(type));
    } else {
      out += static_cast<char>(0xF0 | type);
      varint(size);
    }
  }
  void zigzag(std::int64_t value) {
    varint(static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
  }
  void binary(std::string_view value) {
    varint(value.size());
    out += value;
  }

  std::string out;

 private:
  void field(int id, int type) {
    out += static_cast<char>((id - last_.back()) << 4 | type);  // ids are close together here
    last_.back() = id;
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }
  std::vector<int> last_ = {0};
};

constexpr int kI32 = 5, kBinary = 8, kStruct = 12;
constexpr std::int64_t kByteArray = 6, kZstd = 6, kRle = 3;

void append_page(const std::string& values, std::int64_t count, std::string& out) {
  std::string packed(ZSTD_compressBound(values.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), values.data(), values.size(), 3);
  QT_CHECK(ZSTD_isError(size) == 0, "{}", ZSTD_getErrorName(size));
  ThriftWriter header;
  header.number(1, 0, false);
  header.number(2, static_cast<std::int64_t>(values.size()), false);
  header.number(3, static_cast<std::int64_t>(size), false);
  header.begin_struct(5);
  header.number(1, count, false);
  header.number(2, 0, false);
  header.number(3, kRle, false);
  header.number(4, kRle, false);
  header.end_struct();
  out += header.out + '\0';
  out.append(packed, 0, size);
}

}  // namespace

std::string parquet_file(const std::vector<std::string_view>& texts, std::size_t page_bytes,
                         std::size_t group_bytes) {
  struct Group {
    std::int64_t begin = 0, size = 0, rows = 0, raw = 0;
  };
  std::string out = "PAR1", values;
  std::vector<Group> groups;
  std::int64_t in_page = 0;
  const auto end_page = [&] {
    if (in_page == 0) return;
    groups.back().raw += static_cast<std::int64_t>(values.size());
    append_page(values, in_page, out);
    groups.back().size = static_cast<std::int64_t>(out.size()) - groups.back().begin;
    values.clear();
    in_page = 0;
  };
  std::size_t in_group = group_bytes;
  for (const std::string_view text : texts) {
    if (in_group >= group_bytes) {
      end_page();
      groups.push_back({static_cast<std::int64_t>(out.size()), 0, 0, 0});
      in_group = 0;
    }
    const auto size = static_cast<std::uint32_t>(text.size());
    values.append(reinterpret_cast<const char*>(&size), sizeof(size));
    values += text;
    in_group += text.size();
    ++in_page;
    ++groups.back().rows;
    if (values.size() >= page_bytes) end_page();
  }
  end_page();
  ThriftWriter meta;
  meta.number(1, 1, false);
  meta.begin_list(2, 2, kStruct);
  meta.begin_element();
  meta.text(4, "schema");
  meta.number(5, 1, false);
  meta.end_struct();
  meta.begin_element();
  meta.number(1, kByteArray, false);
  meta.number(3, 0, false);
  meta.text(4, "text");
  meta.number(6, 0, false);
  meta.end_struct();
  meta.number(3, static_cast<std::int64_t>(texts.size()), true);
  meta.begin_list(4, groups.size(), kStruct);
  for (const Group& group : groups) {
    meta.begin_element();
    meta.begin_list(1, 1, kStruct);
    meta.begin_element();
    meta.number(2, group.begin, true);
    meta.begin_struct(3);
    meta.number(1, kByteArray, false);
    meta.begin_list(2, 1, kI32);
    meta.zigzag(0);
    meta.begin_list(3, 1, kBinary);
    meta.binary("text");
    meta.number(4, kZstd, false);
    meta.number(5, group.rows, true);
    meta.number(6, group.raw, true);
    meta.number(7, group.size, true);
    meta.number(9, group.begin, true);
    meta.end_struct();
    meta.end_struct();
    meta.number(2, group.raw, true);
    meta.number(3, group.rows, true);
    meta.end_struct();
  }
  meta.out += '\0';
  const auto length = static_cast<std::uint32_t>(meta.out.size());
  out += meta.out;
  out.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return out + "PAR1";
}

}  // namespace quintet
