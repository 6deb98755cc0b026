// Where a study keeps its rows: FOLDER/study.sqlite (docs/studies.md says what is in it). A row is
// planned when the study begins, running while it runs, and gets its result in one transaction;
// whatever ends the program, a row is there once, whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "lab/design.h"
#include "lab/folder_database.h"

namespace quintet {

// What came of a row.
struct RowResult {
  std::string status;  // done, impossible, failed
  std::string reason;  // of the latter two
  std::optional<std::int64_t> exit;
  std::vector<double> step_seconds;  // of each measured step
  double median_seconds = 0, tokens_per_second = 0;
  std::int64_t memory_bytes = 0, host_bytes = 0, bytes_sent = 0;
  Json books;  // seconds per step by name
  std::optional<double> final_loss;
  std::string fingerprint;
};

struct StoredRow {
  std::int64_t id = 0;
  bool simulated = false;
  Json settings;
};

struct RowCounts {
  std::int64_t planned = 0, running = 0, done = 0, impossible = 0, failed = 0;
  std::int64_t all() const { return planned + running + done + impossible + failed; }
  std::int64_t finished() const { return done + impossible + failed; }
};

class StudyStore {
 public:
  // One that holds a study, or is empty; nothing is written. Held by one process at a time.
  static Result<StudyStore> open(const Path& folder, bool create);
  // Only to look at, whoever holds it.
  static Result<StudyStore> view(const Path& folder);

  // Whether there is a study in it.
  Result<bool> holds_study() const;
  // Puts a study with all its rows into an empty one, at once or not at all.
  Status begin(const StudyFile& study, const std::vector<PlannedRow>& rows);
  Result<std::string> get(const std::string& key) const;  // "" if there is none
  Status set(const std::string& key, const std::string& value);

  // Rows that an end without a farewell left running are planned again.
  Result<std::int64_t> reclaim();
  Result<std::vector<StoredRow>> planned() const;
  // Rows that ran, with their losses, in the order of their ids.
  struct Loss {
    StoredRow row;
    double value = 0;
  };
  Result<std::vector<Loss>> losses() const;
  Result<RowCounts> counts() const;
  // Why rows have no result, with how often, most first.
  Result<std::vector<std::pair<std::string, std::int64_t>>> reasons(
      const std::string& status) const;
  Status start(std::int64_t id, const std::string& command);
  Status finish(std::int64_t id, const RowResult& result);
  Status put_back(std::int64_t id);  // was interrupted; is planned again

 private:
  explicit StudyStore(FolderDatabase database);
  FolderDatabase database_;
};

// A setting as JSON, and the level of a factor that it is.
Json json_of(const TomlScalar& scalar);

}  // namespace quintet
