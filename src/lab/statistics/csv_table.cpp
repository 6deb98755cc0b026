#include "lab/statistics/csv_table.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace quintet {
namespace {

struct Columns {
  std::size_t response = 0;
  std::vector<std::size_t> factors;
  std::optional<std::size_t> block, memory, predicted;
};

Result<Columns> find_columns(const CsvTable& csv, const ColumnChoice& choice,
                             const std::string& origin) {
  Columns columns;
  QT_ASSIGN(columns.response, csv.column(choice.response, origin));
  for (const std::string& name : choice.factors) {
    QT_ASSIGN(const std::size_t column, csv.column(name, origin));
    if (column == columns.response) {
      return usage_error("{} is the response; it cannot be a factor, too", name);
    }
    if (std::find(columns.factors.begin(), columns.factors.end(), column) !=
        columns.factors.end()) {
      return usage_error("factor {} is named twice", name);
    }
    columns.factors.push_back(column);
  }
  const auto optional = [&](const std::string& name, std::optional<std::size_t>& column) -> Status {
    if (name.empty()) return {};
    QT_ASSIGN(column, csv.column(name, origin));
    return {};
  };
  QT_TRY(optional(choice.block, columns.block));
  const bool explains = columns.block && std::find(columns.factors.begin(), columns.factors.end(),
                                                   *columns.block) != columns.factors.end();
  if (columns.block && (explains || *columns.block == columns.response)) {
    return usage_error("{} is {}; it cannot be the block, too", choice.block,
                       explains ? "a factor" : "the response");
  }
  QT_TRY(optional(choice.memory, columns.memory));
  QT_TRY(optional(choice.predicted, columns.predicted));
  for (const std::string& name : choice.numeric) {
    if (std::find(choice.factors.begin(), choice.factors.end(), name) == choice.factors.end()) {
      return usage_error("numeric {} is none of the factors {}", name, join(choice.factors, ", "));
    }
  }
  return columns;
}

constexpr const char* kEffects = "effects are factors, for which all values must be above zero";

// A positive number; kUnknown where the field is empty. `why` it must be one.
Result<double> positive(const CsvTable& csv, const CsvTable::Row& row, std::size_t column,
                        const std::string& origin, const char* why) {
  const std::string& field = row.fields[column];
  if (is_missing(field)) return kUnknown;
  const auto value = plain_number(field);
  if (!value) {
    return bad_input("{}:{}: {} is \"{}\", which is not a plain number", origin, row.line,
                     csv.names[column], field);
  }
  if (!(*value > 0)) {
    return bad_input("{}:{}: {} is {}; {}", origin, row.line, csv.names[column], field, why);
  }
  return *value;
}

Result<std::vector<const CsvTable::Row*>> rows_that_meet(const CsvTable& csv,
                                                         const std::vector<Condition>& conditions,
                                                         const std::string& origin) {
  std::vector<bool> meets(csv.rows.size(), true);
  for (const Condition& condition : conditions) {
    QT_ASSIGN(const std::size_t column, csv.column(condition.name, origin));
    std::vector<std::string> fields;
    for (const CsvTable::Row& row : csv.rows) fields.push_back(row.fields[column]);
    const std::vector<bool> meant = levels_meant(fields, condition.level);
    for (std::size_t r = 0; r < meets.size(); ++r) meets[r] = meets[r] && meant[r];
  }
  std::vector<const CsvTable::Row*> rows;
  for (std::size_t r = 0; r < meets.size(); ++r) {
    if (meets[r]) rows.push_back(&csv.rows[r]);
  }
  if (rows.empty()) {
    return bad_input("{}: of {} rows none has {}", origin, csv.rows.size(), describe(conditions));
  }
  return rows;
}

}  // namespace

Result<Condition> parse_condition(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
    return usage_error("condition \"{}\": expected NAME=LEVEL, e.g. zero=3", text);
  }
  return Condition{text.substr(0, equals), text.substr(equals + 1)};
}

std::string describe(const std::vector<Condition>& conditions) {
  std::vector<std::string> words;
  for (const Condition& one : conditions) words.push_back(one.name + "=" + one.level);
  return join(words, " and ");
}

Result<CsvObservations> table_from_csv(const CsvTable& csv, const ColumnChoice& choice,
                                       const std::vector<Condition>& conditions,
                                       const std::string& origin) {
  if (choice.factors.empty()) return usage_error("name the factors: --factors a,b,c");
  QT_ASSIGN(const Columns columns, find_columns(csv, choice, origin));
  QT_ASSIGN(const auto rows, rows_that_meet(csv, conditions, origin));
  CsvObservations result;
  Table& table = result.table;
  table.response = table.time = choice.response;
  table.more_is_better = choice.more_is_better || is_rate(choice.response);
  result.filtered = csv.rows.size() - rows.size();
  for (std::size_t f = 0; f < columns.factors.size(); ++f) {
    std::vector<std::string> levels;
    for (const CsvTable::Row* row : rows) {
      const std::string& level = row->fields[columns.factors[f]];
      if (is_missing(level)) {
        return bad_input("{}:{}: factor {} has no value", origin, row->line, choice.factors[f]);
      }
      levels.push_back(level);
    }
    const bool numeric = std::find(choice.numeric.begin(), choice.numeric.end(),
                                   choice.factors[f]) != choice.numeric.end();
    auto factor = make_factor(choice.factors[f], std::move(levels), numeric);
    if (!factor.ok()) return bad_input("{}: {}", origin, factor.error().message);
    table.factors.push_back(std::move(factor).value());
  }
  result.predicted.factors = table.factors;
  result.predicted.response = choice.predicted;
  result.predicted.more_is_better = table.more_is_better;
  std::map<std::string, std::size_t> blocks;
  for (const CsvTable::Row* row : rows) {
    Observation seen;
    for (std::size_t f = 0; f < columns.factors.size(); ++f) {
      const auto level = find_level(table.factors[f], row->fields[columns.factors[f]]);
      QT_CHECK(level.has_value(), "a level that was collected is not there");
      seen.level.push_back(*level);
    }
    if (columns.predicted) {
      Observation guess{.level = seen.level, .breakdown = {}};
      QT_ASSIGN(guess.response, positive(csv, *row, *columns.predicted, origin, kEffects));
      if (!std::isnan(guess.response)) result.predicted.rows.push_back(std::move(guess));
    }
    QT_ASSIGN(seen.response, positive(csv, *row, columns.response, origin, kEffects));
    if (std::isnan(seen.response)) {
      result.without_response.push_back(row->line);
      continue;
    }
    seen.seconds = table.more_is_better ? 1 / seen.response : seen.response;
    if (columns.block) {
      const std::string& block = row->fields[*columns.block];
      if (is_missing(block)) {
        return bad_input("{}:{}: block {} has no value", origin, row->line, choice.block);
      }
      seen.block = blocks.try_emplace(block, blocks.size()).first->second;
    }
    if (columns.memory) {
      QT_ASSIGN(
          seen.memory_bytes,
          positive(csv, *row, *columns.memory, origin,
                   "memory is in bytes, above zero; where it is not known, leave the field empty"));
    }
    table.rows.push_back(std::move(seen));
  }
  table.blocks = std::max<std::size_t>(blocks.size(), 1);
  if (table.rows.empty()) {
    return bad_input("{}: no row has a value of {}", origin, choice.response);
  }
  return result;
}

}  // namespace quintet
