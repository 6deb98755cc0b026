// CSV files, and what the statistics make of those that can be read.
#include "base/check.h"
#include "lab/statistics/analysis.h"
#include "lab/statistics/csv_table.h"
#include "tests/fuzz/fuzz.h"

using namespace quintet;  // NOLINT: a test of the whole surface

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto csv = parse_csv(text, "fuzz");
  if (!csv.ok()) return 0;
  for (const CsvTable::Row& row : csv.value().rows) {
    QT_CHECK(row.fields.size() == csv.value().names.size(), "a ragged row was accepted");
  }
  ColumnChoice columns;
  columns.response = "seconds";
  columns.factors = {"zero", "bandwidth"};
  columns.numeric = {"bandwidth"};
  auto table = table_from_csv(csv.value(), columns, {}, "fuzz");
  if (!table.ok()) return 0;
  const auto analysis = analyse(table.value().table, table.value().predicted, "fuzz");
  // Whatever was accepted can be told, and told in JSON.
  if (!analysis.ok()) return 0;
  QT_CHECK(!describe(analysis.value()).empty(), "nothing to say");
  QT_CHECK(parse_json(to_text(to_json(analysis.value())), "again").ok(), "no JSON");
  return 0;
}

std::vector<std::string> seeds() {
  return {
      "zero,bandwidth,seconds\n0,1,1.5\n0,2,1.2\n3,1,2.5\n3,2,1.0\n0,1,1.6\n",
      "\xef\xbb\xbf\"zero\",\"bandwidth\",\"seconds\"\r\n\"a,b\",1,1\r\n\"c\"\"d\",2gbit,3e-3\r\n",
      "zero,bandwidth,seconds\n0,500mbit,NA\n1,1gbit,\n"};
}
