// Files whose records are not lines (CSV, WARC, Parquet) as a stream of JSON lines with the fields
// that are wanted: so blocks, resuming, counting and naming of what is wrong are the same for all,
// and a line's number is the record's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "data/corpus/byte_source.h"

namespace quintet {

// The field of a line that holds no document on purpose: its value says why. No file of ours has
// it; a user's JSON that has is counted likewise.
inline constexpr std::string_view kLeftOutField = "\001left out";
// The same for one that should have held one.
inline constexpr std::string_view kBadRecordField = "\001bad record";

// Which fields of records are wanted.
struct RecordFields {
  std::string text = "text", language;  // language empty: none
};

class RecordSource : public ByteSource {
 public:
  Result<std::size_t> read(std::span<char> out) final;

 protected:
  // Appends a line or some to `lines`; false when there are no more records.
  virtual Result<bool> next(std::string& lines) = 0;

 private:
  std::string lines_;
  std::size_t begin_ = 0;
  bool ended_ = false;
};

// Appends "key": "value" as JSON, the comma and braces left to the caller. Bytes that are no UTF-8
// stay as they are, and make the line one that is refused.
void append_json_string(std::string_view text, std::string& out);
// A line of one field.
void append_json_line(std::string_view key, std::string_view value, std::string& out);

// Comma- or tab-separated values; the first record names the columns. Commas: fields may be quoted,
// with line breaks in them (RFC 4180). Tabs: nothing is quoted. Fails where a column is missing.
Result<std::unique_ptr<ByteSource>> open_separated(std::unique_ptr<ByteSource> file,
                                                   const std::string& name, char separator,
                                                   const RecordFields& fields);

// Records of a web archive. Those of type "conversion" (WET files) are documents; their languages
// are in the header "WARC-Identified-Content-Language", the first if there are several.
Result<std::unique_ptr<ByteSource>> open_warc(std::unique_ptr<ByteSource> file,
                                              const std::string& name, const RecordFields& fields);

}  // namespace quintet
