#include "lab/search/journal.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/json.h"
#include "lab/study_store.h"

namespace quintet {
namespace {

constexpr const char* kJournalTables[] = {
    "CREATE TABLE search(key TEXT PRIMARY KEY, value TEXT)",
    "CREATE TABLE trials(id INTEGER PRIMARY KEY, level INTEGER, parent INTEGER, settings TEXT)",
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, trial INTEGER, rung INTEGER, steps INTEGER, "
    "status TEXT, reason TEXT, value REAL, seconds REAL, exit INTEGER, finish INTEGER, "
    "command TEXT, started REAL, finished REAL, host TEXT)"};

double time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string this_host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

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

SearchJournal::SearchJournal(Path folder, SqlDatabase database, int lock)
    : folder_(std::move(folder)), database_(std::move(database)), lock_(lock) {}
SearchJournal::SearchJournal(SearchJournal&& other) noexcept
    : folder_(std::move(other.folder_)),
      database_(std::move(other.database_)),
      lock_(std::exchange(other.lock_, -1)) {}
SearchJournal::~SearchJournal() {
  if (lock_ >= 0) ::close(lock_);
}

Result<SearchJournal> SearchJournal::open(const Path& folder, bool create) {
  const Path file = folder / "search.sqlite";
  if (create) {
    QT_TRY(make_directories(folder));
  } else if (!std::filesystem::exists(file)) {
    return bad_input("{}: no search is in this folder (search.sqlite is missing)", folder.string());
  }
  const Path lock_file = folder / "lock";
  const int lock = ::open(lock_file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock < 0) return io_error("{}: {}", lock_file.string(), std::strerror(errno));
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return usage_error("{}: another process is running this search", folder.string());
  }
  auto database = SqlDatabase::open(
      file.string(), create ? SqlDatabase::Mode::kCreate : SqlDatabase::Mode::kWrite);
  if (!database.ok()) {
    ::close(lock);
    return database.error();
  }
  SearchJournal journal(folder, std::move(database).value(), lock);
  // One file whenever nothing is being written, durable after every decision and result.
  QT_TRY(journal.database_.run("PRAGMA journal_mode=DELETE"));
  QT_TRY(journal.database_.run("PRAGMA synchronous=FULL"));
  return journal;
}

Result<SearchJournal> SearchJournal::view(const Path& folder) {
  const Path file = folder / "search.sqlite";
  if (!std::filesystem::exists(file)) {
    return bad_input("{}: no search is in this folder (search.sqlite is missing)", folder.string());
  }
  QT_ASSIGN(SqlDatabase database, SqlDatabase::open(file.string(), SqlDatabase::Mode::kRead));
  SearchJournal journal(folder, std::move(database), -1);
  QT_ASSIGN(const bool holds, journal.holds_search());
  if (!holds) return bad_input("{}: not the journal of a search", file.string());
  return journal;
}

Result<bool> SearchJournal::holds_search() const {
  QT_ASSIGN(const auto tables,
            database_.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"));
  if (tables.empty()) return false;
  std::string names;
  for (const SqlRow& row : tables) names += text_in(row[0]) + " ";
  if (names == "jobs search trials ") return true;
  return bad_input("{}: a database of something else (tables {}); nothing was changed",
                   (folder_ / "search.sqlite").string(), names);
}

Status SearchJournal::begin(const SearchFile& search, std::int64_t threads) {
  QT_TRY(database_.run("BEGIN IMMEDIATE"));
  for (const char* table : kJournalTables) QT_TRY(database_.run(table));
  const std::vector<std::pair<std::string, std::string>> facts = {
      {"name", search.search.name},
      {"question", search.search.question},
      {"file", search.text},
      {"hash", search.hash},
      {"version", QUINTET_VERSION},
      {"created", fmt::format("{:.0f}", time_now())},
      {"threads", std::to_string(threads)},
      {"host", this_host()}};
  for (const auto& [key, value] : facts)
    QT_TRY(database_.run("INSERT INTO search VALUES(?,?)", {key, value}));
  return database_.run("COMMIT");
}

Result<std::string> SearchJournal::get(const std::string& key) const {
  QT_ASSIGN(const auto rows, database_.query("SELECT value FROM search WHERE key = ?", {key}));
  return rows.empty() ? std::string() : text_in(rows[0][0]);
}

Result<SearchFile> SearchJournal::search() const {
  QT_ASSIGN(const std::string text, get("file"));
  QT_ASSIGN(const std::string name, get("name"));
  QT_ASSIGN(SearchFile search, SearchFile::parse(text, (folder_ / (name + ".toml")).string()));
  search.search.name = name;
  return search;
}

Result<std::vector<Trial>> SearchJournal::trials() const {
  const std::string where = (folder_ / "search.sqlite").string();
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
  QT_TRY(
      database_.run("INSERT INTO jobs(id, trial, rung, steps, status, command, started, host) "
                    "VALUES(?,?,?,?,'running',?,?,?)",
                    {job, id, decision.rung, steps, command, time_now(), this_host()}));
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
       result.seconds, code, order, time_now(), known.job}));
  known.status = result.status;
  known.reason = result.reason;
  known.value = result.value;
  known.seconds = result.seconds;
  known.finished = order;
  return {};
}

}  // namespace quintet
