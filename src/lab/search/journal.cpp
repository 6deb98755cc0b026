#include "lab/search/journal.h"

#include <cmath>

#include "base/json.h"
#include "lab/study_store.h"

namespace quintet {
namespace {

const FolderDatabase::Kind kSearchDatabase = {
    "search",
    "jobs search trials ",
    {"CREATE TABLE search(key TEXT PRIMARY KEY, value TEXT)",
     "CREATE TABLE trials(id INTEGER PRIMARY KEY, level INTEGER, parent INTEGER, settings TEXT)",
     "CREATE TABLE jobs(id INTEGER PRIMARY KEY, trial INTEGER, rung INTEGER, steps INTEGER, "
     "status TEXT, reason TEXT, value REAL, seconds REAL, exit INTEGER, finish INTEGER, "
     "command TEXT, started REAL, finished REAL, host TEXT)"}};

Result<Settings> settings_in(const std::string& text, const std::string& where) {
  QT_ASSIGN(const Json json, parse_json(text, where));
  Settings settings;
  if (!json.is_object()) return bad_input("{}: settings that are no object", where);
  for (const auto& [key, value] : json.items()) {
    if (value.is_boolean()) {
      settings[key] = value.get<bool>();
    } else if (value.is_number_integer()) {
      settings[key] = value.get<std::int64_t>();
    } else if (value.is_number()) {
      settings[key] = value.get<double>();
    } else if (value.is_string()) {
      settings[key] = value.get<std::string>();
    } else {
      return bad_input("{}: {} is no setting", where, key);
    }
  }
  return settings;
}

}  // namespace

SearchJournal::SearchJournal(FolderDatabase database) : database_(std::move(database)) {}

Result<SearchJournal> SearchJournal::open(const Path& folder, bool create) {
  QT_ASSIGN(FolderDatabase database, FolderDatabase::open(folder, kSearchDatabase, create));
  return SearchJournal(std::move(database));
}

Result<SearchJournal> SearchJournal::view(const Path& folder) {
  QT_ASSIGN(FolderDatabase database, FolderDatabase::view(folder, kSearchDatabase));
  return SearchJournal(std::move(database));
}

Result<bool> SearchJournal::holds_search() const {
  return database_.begun();
}

Status SearchJournal::begin(const SearchFile& search, std::int64_t threads) {
  QT_TRY(database_.run("BEGIN IMMEDIATE"));
  QT_TRY(database_.make_tables());
  const std::vector<std::pair<std::string, std::string>> facts = {
      {"name", search.search.name},
      {"question", search.search.question},
      {"file", search.text},
      {"hash", search.hash},
      {"version", QUINTET_VERSION},
      {"created", fmt::format("{:.0f}", seconds_since_1970())},
      {"threads", std::to_string(threads)},
      {"host", host_name_here()}};
  for (const auto& [key, value] : facts) QT_TRY(database_.set(key, value));
  return database_.run("COMMIT");
}

Result<std::string> SearchJournal::get(const std::string& key) const {
  return database_.get(key);
}

Result<SearchFile> SearchJournal::search() const {
  QT_ASSIGN(const std::string text, get("file"));
  QT_ASSIGN(const std::string name, get("name"));
  QT_ASSIGN(SearchFile search,
            SearchFile::parse(text, (database_.folder() / (name + ".toml")).string()));
  search.search.name = name;
  return search;
}

Result<std::vector<Trial>> SearchJournal::trials() const {
  const std::string where = (database_.folder() / "search.sqlite").string();
  std::vector<Trial> trials;
  QT_ASSIGN(const auto rows,
            database_.query("SELECT id, level, parent, settings FROM trials ORDER BY id"));
  for (const SqlRow& row : rows) {
    QT_ASSIGN(Settings settings, settings_in(text_in(row[3]), where));
    trials.push_back(
        {integer_in(row[0]), integer_in(row[1]), integer_in(row[2]), std::move(settings), {}});
    if (trials.back().id != std::ssize(trials))
      return bad_input("{}: trial {} is missing", where, std::ssize(trials));
  }
  QT_ASSIGN(const auto jobs,
            database_.query("SELECT id, trial, rung, steps, status, reason, value, seconds, "
                            "finish, command FROM jobs ORDER BY id"));
  for (const SqlRow& row : jobs) {
    const std::int64_t trial = integer_in(row[1]);
    if (trial < 1 || trial > std::ssize(trials))
      return bad_input("{}: a job of trial {}, which is not there", where, trial);
    RungResult result;
    result.job = integer_in(row[0]);
    result.rung = integer_in(row[2]);
    result.steps = integer_in(row[3]);
    result.status = text_in(row[4]);
    result.reason = text_in(row[5]);
    result.value = real_in(row[6], result.value);
    result.seconds = real_in(row[7]);
    result.finished = integer_in(row[8]);
    result.command = text_in(row[9]);
    std::vector<RungResult>& rungs = trials[static_cast<std::size_t>(trial) - 1].rungs;
    if (result.rung != std::ssize(rungs))
      return bad_input("{}: rung {} of trial {} is missing", where, std::ssize(rungs), trial);
    rungs.push_back(std::move(result));
  }
  for (const Trial& trial : trials) {
    if (trial.rungs.empty()) return bad_input("{}: trial {} has no job", where, trial.id);
  }
  return trials;
}

Status SearchJournal::decided(const SearchDecision& decision, std::int64_t steps,
                              const std::string& command, std::vector<Trial>& trials) {
  const bool begins = decision.kind == SearchDecision::Kind::kBegin;
  const std::int64_t id = begins ? std::ssize(trials) + 1 : decision.trial;
  std::int64_t job = 1;
  for (const Trial& trial : trials) job += std::ssize(trial.rungs);
  QT_TRY(database_.run("BEGIN IMMEDIATE"));
  if (begins) {
    Json settings = Json::object();
    for (const auto& [key, value] : decision.settings) settings[key] = json_of(value);
    QT_TRY(database_.run("INSERT INTO trials VALUES(?,?,?,?)",
                         {id, decision.level, decision.parent, to_text(settings)}));
  }
  QT_TRY(database_.run(
      "INSERT INTO jobs(id, trial, rung, steps, status, command, started, host) "
      "VALUES(?,?,?,?,'running',?,?,?)",
      {job, id, decision.rung, steps, command, seconds_since_1970(), host_name_here()}));
  QT_TRY(database_.run("COMMIT"));
  if (begins) trials.push_back({id, decision.level, decision.parent, decision.settings, {}});
  RungResult result;
  result.job = job;
  result.rung = decision.rung;
  result.steps = steps;
  result.status = "running";
  result.command = command;
  trials[static_cast<std::size_t>(id) - 1].rungs.push_back(std::move(result));
  return {};
}

Status SearchJournal::finished(Trial& trial, const RungResult& result,
                               std::optional<std::int64_t> exit) {
  QT_ASSIGN(const auto rows, database_.query("SELECT max(finish) FROM jobs"));
  const std::int64_t order = integer_in(rows[0][0]) + 1;
  SqlValue value, code;
  if (std::isfinite(result.value)) value = result.value;
  if (exit) code = *exit;
  RungResult& known = trial.rungs.back();
  QT_TRY(database_.run(
      "UPDATE jobs SET status = ?, reason = ?, value = ?, seconds = ?, exit = ?, finish = ?, "
      "finished = ? WHERE id = ?",
      {result.status, result.reason.empty() ? SqlValue() : SqlValue(result.reason), value,
       result.seconds, code, order, seconds_since_1970(), known.job}));
  known.status = result.status;
  known.reason = result.reason;
  known.value = result.value;
  known.seconds = result.seconds;
  known.finished = order;
  return {};
}

}  // namespace quintet
