#include "lab/sqlite.h"

#include <sqlite3.h>

namespace quintet {
namespace {

// A database that is not one, or not whole, is bad input; the rest is the system's.
ErrorCode code_of(int code) {
  return code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? ErrorCode::kBadInput : ErrorCode::kIo;
}

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

struct Binder {
  sqlite3_stmt* statement;
  int place;
  int operator()(std::monostate) const { return sqlite3_bind_null(statement, place); }
  int operator()(std::int64_t value) const { return sqlite3_bind_int64(statement, place, value); }
  int operator()(double value) const { return sqlite3_bind_double(statement, place, value); }
  int operator()(const std::string& value) const {
    return sqlite3_bind_text(statement, place, value.data(), static_cast<int>(value.size()),
                             SQLITE_TRANSIENT);
  }
};

SqlValue column(sqlite3_stmt* statement, int place) {
  switch (sqlite3_column_type(statement, place)) {
    case SQLITE_INTEGER:
      return std::int64_t{sqlite3_column_int64(statement, place)};
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, place);
    case SQLITE_NULL:
      return std::monostate();
    default: {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, place));
      return std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(statement, place)));
    }
  }
}

}  // namespace

double real_in(const SqlValue& value, double fallback) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return fallback;
}
std::int64_t integer_in(const SqlValue& value, std::int64_t fallback) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  return integer == nullptr ? fallback : *integer;
}
std::string text_in(const SqlValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? "" : *text;
}

void SqlDatabase::Close::operator()(sqlite3* handle) const {
  sqlite3_close_v2(handle);
}

Result<SqlDatabase> SqlDatabase::open(const std::string& file, Mode mode) {
  SqlDatabase database;
  database.file_ = file;
  const int flags = mode == Mode::kRead    ? SQLITE_OPEN_READONLY
                    : mode == Mode::kWrite ? SQLITE_OPEN_READWRITE
                                           : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(file.c_str(), &handle, flags, nullptr);
  database.handle_.reset(handle);
  if (code != SQLITE_OK) {
    return make_error(mode == Mode::kCreate ? ErrorCode::kIo : ErrorCode::kBadInput,
                      "{}: cannot be opened: {}", file,
                      handle == nullptr ? "out of memory" : sqlite3_errmsg(handle));
  }
  sqlite3_busy_timeout(handle, 10000);
  return database;
}

Result<std::vector<SqlRow>> SqlDatabase::query(const std::string& sql, const SqlRow& values) const {
  sqlite3_stmt* raw = nullptr;
  int code = sqlite3_prepare_v2(handle_.get(), sql.c_str(), -1, &raw, nullptr);
  const std::unique_ptr<sqlite3_stmt, Finalize> statement(raw);
  for (std::size_t i = 0; code == SQLITE_OK && i < values.size(); ++i) {
    code = std::visit(Binder{raw, static_cast<int>(i) + 1}, values[i]);
  }
  std::vector<SqlRow> rows;
  while (code == SQLITE_OK || code == SQLITE_ROW) {
    code = sqlite3_step(raw);
    if (code != SQLITE_ROW) break;
    SqlRow row;
    for (int i = 0; i < sqlite3_column_count(raw); ++i) row.push_back(column(raw, i));
    rows.push_back(std::move(row));
  }
  if (code == SQLITE_DONE) return rows;
  return make_error(code_of(code), "{}: {}", file_, sqlite3_errmsg(handle_.get()));
}

Status SqlDatabase::run(const std::string& sql, const SqlRow& values) const {
  if (const auto done = query(sql, values); !done.ok()) return done.error();
  return {};
}

}  // namespace quintet
