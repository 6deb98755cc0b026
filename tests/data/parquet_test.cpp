// Parquet files that pyarrow wrote (parquet/make.py), and files that are damaged or hostile.
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/philox.h"
#include "data/bench/parquet_writer.h"
#include "data/corpus/inputs.h"
#include "data/corpus/parquet_source.h"
#include "data/corpus/parquet_values.h"
#include "tests/support/folders.h"
#include "tests/support/mutate.h"
#include "tests/support/temporary_folder.h"

namespace quintet {
namespace {

Path fixture(const std::string& name) {
  return Path(QUINTET_SOURCE_DIR) / "tests/data/parquet" / (name + ".parquet");
}

// All rows of a file as JSON, group by group.
Result<std::vector<Json>> rows_of(const Path& path, const RecordFields& fields) {
  QT_ASSIGN(const ParquetFile file, read_parquet_footer(path));
  std::vector<Json> rows;
  for (std::size_t group = 0; group < file.groups.size(); ++group) {
    QT_ASSIGN(const auto source, open_parquet_group(path, group, fields));
    std::string text, part(1 << 16, '\0');
    for (;;) {
      QT_ASSIGN(const std::size_t got, source->read(part));
      text.append(part, 0, got);
      if (got < part.size()) break;
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      QT_ASSIGN(Json row, parse_json(text.substr(at, end - at), "row"));
      rows.push_back(std::move(row));
      at = end + 1;
    }
    QT_ASSIGN(const std::uint64_t bytes, parquet_group_bytes(file, group, fields, "f"));
    EXPECT_LE(source->consumed(), bytes);
  }
  return rows;
}

std::vector<Json> expected_rows() {
  const std::string text =
      read_file(Path(QUINTET_SOURCE_DIR) / "tests/data/parquet/expected.jsonl").value();
  std::vector<Json> rows;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    rows.push_back(parse_json(text.substr(at, end - at), "row").value());
    at = end + 1;
  }
  return rows;
}

class ParquetFixture : public ::testing::TestWithParam<const char*> {};

TEST_P(ParquetFixture, HoldsWhatPyarrowWrote) {
  const std::vector<Json> expected = expected_rows();
  const std::string name = GetParam();
  const bool nested = name == "nested", lists = name.starts_with("lists");
  const RecordFields fields{nested  ? "body.inner.text"
                            : lists ? "turns"
                                    : "text",
                            nested ? "meta.lang" : "lang"};
  const auto rows = rows_of(fixture(name), fields);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows.value().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    Json text = expected[i].at("text");
    if (lists && i % 7 == 0) {
      text = nullptr;
    } else if (lists && !text.is_null()) {
      std::string joined = text.get<std::string>();
      std::replace(joined.begin(), joined.end(), ' ', '\n');
      text = joined;
    }
    ASSERT_EQ(rows.value()[i].at(fields.text), text) << name << ", row " << i;
    ASSERT_EQ(rows.value()[i].at(fields.language), expected[i].at("lang")) << name << ", row " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ParquetFixture,
                         ::testing::Values("none", "snappy", "gzip", "zstd", "lz4", "v2", "v2_none",
                                           "plain", "delta_length", "delta_length_v2", "delta",
                                           "delta_v2", "fallback", "large_strings", "one_group",
                                           "nested", "lists", "lists_v2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Parquet, WhatIsMissingIsNamed) {
  const auto missing = rows_of(fixture("snappy"), {"content", ""});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("no column \"content\"; those of strings are text, lang"),
            std::string::npos)
      << missing.error().message;
  const auto number = rows_of(fixture("snappy"), {"score", ""});
  ASSERT_FALSE(number.ok());
  EXPECT_NE(number.error().message.find("holds no strings"), std::string::npos);
  const TemporaryFolder folder;
  put_file(folder.path() / "a.parquet", "PAR1 and nothing else");
  EXPECT_EQ(read_parquet_footer(folder.path() / "a.parquet").error().code, ErrorCode::kBadInput);
}

// A file is a text file of its own for every row group.
TEST(Parquet, RowGroupsAreInputsOfTheirOwn) {
  InputOptions options;
  options.names = {fixture("snappy").string()};
  const FoundInputs found = find_inputs(options).value();
  ASSERT_EQ(found.files.size(), 4u);
  EXPECT_EQ(found.files[3].row_group, 3u);
  EXPECT_NE(found.files[3].name().find("snappy.parquet (row group 3)"), std::string::npos);
}

// Writers give the pages of a row group without rows no place, or one that is none.
TEST(Parquet, ARowGroupMayBeEmpty) {
  const TemporaryFolder folder;
  std::string file = parquet_file({"a"}, 100, 100);
  put_file(folder.path() / "a.parquet", file);
  EXPECT_EQ(rows_of(folder.path() / "a.parquet", {"text", ""}).value().size(), 1u);
  // At the end of the metadata each number has a byte: values, bytes (raw and packed), the place of
  // the pages (4, of which Thrift makes 8); after two ends, bytes and rows of the group.
  char* const numbers = file.data() + file.size() - 8 - 16;
  ASSERT_EQ(numbers[7], 8);
  for (const int at : {1, 3, 5, 7, 11, 13}) numbers[at] = 0;
  put_file(folder.path() / "a.parquet", file);
  const auto rows = rows_of(folder.path() / "a.parquet", {"text", ""});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_TRUE(rows.value().empty());
}

// Cut anywhere, a file is refused; changed anywhere, it is refused or read, and nothing else
// happens: the sanitizers watch.
TEST(Parquet, DamageIsRefusedOrHarmless) {
  const TemporaryFolder folder;
  PhiloxSequence random(4, 4);
  const Path path = folder.path() / "a.parquet";
  int refused = 0, rounds = 0;
  for (const char* name : {"snappy", "gzip", "zstd", "lz4", "v2", "plain", "delta", "delta_length",
                           "lists", "fallback", "nested"}) {
    const std::string good = read_file(fixture(name)).value();
    const std::string text = std::string(name) == "lists" ? "turns" : "text";
    for (std::size_t i = 0; i < 4; ++i) {
      put_file(path, good.substr(0, good.size() * i / 4));
      EXPECT_FALSE(rows_of(path, {text, ""}).ok()) << name;
    }
    for (int i = 0; i < 60; ++i, ++rounds) {
      put_file(path, mutate(good, random));
      const auto rows = rows_of(path, {text, ""});
      if (rows.ok()) continue;
      ++refused;
      EXPECT_FALSE(rows.error().message.empty());
    }
  }
  EXPECT_GT(refused, rounds / 4);
}

// Sizes that files claim are not believed.
TEST(Parquet, ClaimsAreChecked) {
  std::string out;
  EXPECT_FALSE(decompress_page(ParquetCodec::kSnappy, "\xff\xff\xff\xff\x0f", 100, "f", out).ok());
  EXPECT_FALSE(decompress_page(ParquetCodec::kNone, "abc", 4, "f", out).ok());
  EXPECT_FALSE(decompress_page(ParquetCodec::kZstd, "abc", std::size_t{1} << 40, "f", out).ok());
  EXPECT_FALSE(decompress_page(ParquetCodec::kBrotli, "abc", 4, "f", out).ok());
  // 2^31 lengths of no bits each.
  std::string_view bytes("\x80\x01\x04\xff\xff\xff\xff\x07\x00", 9);
  std::vector<std::uint32_t> lengths;
  EXPECT_FALSE(read_delta_lengths(bytes, 1000, lengths));
  // A list of 2^60 elements in the metadata.
  EXPECT_FALSE(parse_parquet_metadata(std::string_view("\x29\xfc\xff\xff\xff\xff\xff\xff\xff\x7f"),
                                      1 << 20, "f")
                   .ok());
  // Structs within structs without end.
  EXPECT_FALSE(parse_parquet_metadata(std::string(100000, '\x1c'), 1 << 20, "f").ok());
}

}  // namespace
}  // namespace quintet
