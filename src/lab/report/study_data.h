// A study as its store has it (study.sqlite in the study's folder), read for analysis and report.
// The store is outside input: it may come from another machine, be cut off or not be a study at
// all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "lab/statistics/csv_table.h"
#include "lab/statistics/table.h"

namespace quintet {

struct StudyRun {
  std::int64_t id = 0, cell = 0, repeat = 0, block = 0, position = 0;
  bool simulated = false;
  std::vector<std::string> settings;  // a level for each factor
  std::string status;                 // planned, running, done, impossible, failed
  std::string reason, command, fingerprint, host, version;
  std::int64_t exit = 0;
  // What was not recorded is kUnknown.
  double step_seconds = kUnknown, tokens_per_second = kUnknown, memory_bytes = kUnknown,
         host_bytes = kUnknown, bytes_sent = kUnknown, final_loss = kUnknown;
  std::vector<std::pair<std::string, double>> breakdown;  // seconds of a step; adds up to it
  std::vector<std::pair<std::string, double>> beside;     // what went on beside computation
};

struct StudyFactor {
  std::string name;
  bool numeric = false;
  std::vector<std::string> levels;
};

struct StudyData {
  std::map<std::string, std::string> about;  // name, question, file, hash, version, created, ...
  std::vector<StudyFactor> factors;
  std::vector<StudyRun> runs;  // by id

  std::string text(const std::string& key) const;  // of `about`; "" where there is none
};

Result<StudyData> read_study(const Path& folder);

// A level as people write it: text without quotes, numbers as they are.
std::string level_text(const Json& level);

// The runs that are done, as tables: measured and simulated; there is one at least. An error names
// what cannot be: a response or factor that the study does not have, or why no run is left.
struct StudyTables {
  Table measured, simulated;
  std::vector<std::string> notes;  // e.g. a numeric factor with a level that is no number
};
struct StudyChoice {
  std::string response;              // empty: step_seconds
  std::vector<std::string> factors;  // empty: all of the study's
  std::vector<std::string> numeric;  // besides those the study says are
  std::vector<Condition> conditions;
};
Result<StudyTables> tables_from_study(const StudyData& study, const StudyChoice& choice,
                                      const std::string& origin);

}  // namespace quintet
