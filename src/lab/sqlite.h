// SQLite, as much as the laboratory needs of it: statements with values bound by position, errors
// as Results.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

struct sqlite3;

namespace quintet {

using SqlValue = std::variant<std::monostate, std::int64_t, double, std::string>;
using SqlRow = std::vector<SqlValue>;

// A column's value as a type; the fallback for NULL or another type.
double real_in(const SqlValue& value, double fallback = 0);
std::int64_t integer_in(const SqlValue& value, std::int64_t fallback = 0);
std::string text_in(const SqlValue& value);

// Used by one thread at a time. Waits for other processes' locks up to ten seconds.
class SqlDatabase {
 public:
  enum class Mode { kRead, kWrite, kCreate };
  static Result<SqlDatabase> open(const std::string& file, Mode mode);

  // Runs one statement to its end.
  Result<std::vector<SqlRow>> query(const std::string& sql, const SqlRow& values = {}) const;
  Status run(const std::string& sql, const SqlRow& values = {}) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  std::string file_;
  std::unique_ptr<sqlite3, Close> handle_;
};

}  // namespace quintet
