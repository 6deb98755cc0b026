// The database of a study or a search: one SQLite file in its folder, written by one process at a
// time, durable after every transaction. It has a table named like itself with facts by key.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "lab/sqlite.h"

namespace quintet {

class FolderDatabase {
 public:
  // What is kept in it: FOLDER/NAME.sqlite.
  struct Kind {
    const char* name;                 // study, search
    const char* table_names;          // in alphabetical order, a space after each
    std::vector<const char*> tables;  // the statements that make them
  };

  // One that holds its kind, or is empty; nothing is written. Held until this object's end.
  static Result<FolderDatabase> open(const Path& folder, const Kind& kind, bool create);
  // Only to look at, whoever holds it.
  static Result<FolderDatabase> view(const Path& folder, const Kind& kind);
  FolderDatabase(FolderDatabase&& other) noexcept;
  FolderDatabase& operator=(FolderDatabase&&) = delete;
  ~FolderDatabase();

  const Path& folder() const { return folder_; }
  // Whether it has been begun; an error where it is a database of something else.
  Result<bool> begun() const;
  // Makes the tables; inside a transaction, so that there are all or none.
  Status make_tables() const;
  Result<std::string> get(const std::string& key) const;  // "" if there is none
  Status set(const std::string& key, const std::string& value) const;

  Result<std::vector<SqlRow>> query(const std::string& sql, const SqlRow& values = {}) const {
    return database_.query(sql, values);
  }
  Status run(const std::string& sql, const SqlRow& values = {}) const {
    return database_.run(sql, values);
  }

 private:
  FolderDatabase(Path folder, Kind kind, SqlDatabase database, int lock);
  Path folder_;
  Kind kind_;
  SqlDatabase database_;
  int lock_ = -1;
};

// What rows say of when and where.
double seconds_since_1970();
std::string host_name_here();

}  // namespace quintet
