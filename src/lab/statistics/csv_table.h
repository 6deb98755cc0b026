// A table for the statistics from the columns of a CSV file.
#pragma once

#include <string>
#include <vector>

#include "lab/statistics/csv.h"
#include "lab/statistics/table.h"

namespace quintet {

// Which columns mean what.
struct ColumnChoice {
  std::string response;
  std::vector<std::string> factors;
  std::vector<std::string> numeric;      // of these: those whose levels have a distance
  std::string block, memory, predicted;  // empty: there is none
  bool more_is_better = false;           // of the response; rates are known by their names
};

// "zero=3": rows of another level are left out.
struct Condition {
  std::string name, level;
};
Result<Condition> parse_condition(const std::string& text);
// "zero=3 and tp=2".
std::string describe(const std::vector<Condition>& conditions);

struct CsvObservations {
  Table table;
  Table predicted;  // the same factors; no rows where there is no such column
  std::vector<std::size_t> without_response;  // lines that were left out for it
  std::size_t filtered = 0;                   // rows that did not meet the conditions
};

Result<CsvObservations> table_from_csv(const CsvTable& csv, const ColumnChoice& columns,
                                       const std::vector<Condition>& conditions,
                                       const std::string& origin);

}  // namespace quintet
