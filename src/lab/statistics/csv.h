// Comma-separated tables as RFC 4180 has them and as spreadsheets write them: quoted fields with
// commas, quotes and line ends inside; CRLF or LF; a byte-order mark. Outside input: anything that
// is not a table is refused with the line it went wrong on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

struct CsvTable {
  std::vector<std::string> names;  // of the columns, unique and not empty
  std::size_t line = 0;            // of the names
  struct Row {
    std::size_t line = 0;             // where it begins, counted from 1
    std::vector<std::string> fields;  // as many as there are names
  };
  std::vector<Row> rows;

  // Of the column with that name; an error names the file and the nearest name there is.
  Result<std::size_t> column(const std::string& name, const std::string& origin) const;
};

// The first line names the columns. Empty lines are passed over; spaces around names go.
Result<CsvTable> parse_csv(std::string_view text, const std::string& origin);

// A field as it is written: in quotes where it would not be read back without.
std::string csv_field(const std::string& text);

// Whether a field says that there is no value: empty, "NA", "NaN", "null", "-".
bool is_missing(std::string_view field);

}  // namespace quintet
