#include "lab/study_store.h"

namespace quintet {
namespace {

const FolderDatabase::Kind kStudyDatabase = {
    "study",
    "factors runs study ",
    {"CREATE TABLE study(key TEXT PRIMARY KEY, value TEXT)",
     "CREATE TABLE factors(position INTEGER PRIMARY KEY, name TEXT UNIQUE, numeric INTEGER, "
     "levels TEXT)",
     "CREATE TABLE runs(id INTEGER PRIMARY KEY, cell INTEGER, repeat INTEGER, block INTEGER, "
     "position INTEGER, origin TEXT, settings TEXT, status TEXT, reason TEXT, command TEXT, "
     "started REAL, finished REAL, exit INTEGER, step_seconds REAL, step_seconds_all TEXT, "
     "tokens_per_second REAL, memory_bytes INTEGER, host_bytes INTEGER, bytes_sent INTEGER, "
     "books TEXT, final_loss REAL, fingerprint TEXT, host TEXT, version TEXT)"}};

// NULL where there was nothing to measure.
SqlValue if_done(const RowResult& result, SqlValue value) {
  return result.status == "done" ? std::move(value) : SqlValue();
}

}  // namespace

Json json_of(const TomlScalar& scalar) {
  return std::visit([](const auto& value) { return Json(value); }, scalar);
}

StudyStore::StudyStore(FolderDatabase database) : database_(std::move(database)) {}

Result<StudyStore> StudyStore::open(const Path& folder, bool create) {
  QT_ASSIGN(FolderDatabase database, FolderDatabase::open(folder, kStudyDatabase, create));
  return StudyStore(std::move(database));
}

Result<StudyStore> StudyStore::view(const Path& folder) {
  QT_ASSIGN(FolderDatabase database, FolderDatabase::view(folder, kStudyDatabase));
  return StudyStore(std::move(database));
}

Result<bool> StudyStore::holds_study() const {
  return database_.begun();
}

Status StudyStore::begin(const StudyFile& study, const std::vector<PlannedRow>& rows) {
  QT_TRY(database_.run("BEGIN IMMEDIATE"));
  QT_TRY(database_.make_tables());
  const std::vector<std::pair<std::string, std::string>> facts = {
      {"name", study.study.name},
      {"question", study.study.question},
      {"file", study.text},
      {"hash", study.hash},
      {"version", QUINTET_VERSION},
      {"created", fmt::format("{:.0f}", seconds_since_1970())},
      {"links", "[]"},
      {"host", host_name_here()}};
  for (const auto& [key, value] : facts) QT_TRY(set(key, value));
  for (std::size_t f = 0; f < study.factors.size(); ++f) {
    const DesignFactor& factor = study.factors[f];
    Json levels = Json::array();
    for (const TomlScalar& level : factor.levels) levels.push_back(json_of(level));
    QT_TRY(database_.run("INSERT INTO factors VALUES(?,?,?,?)",
                         {static_cast<std::int64_t>(f), factor.name,
                          std::int64_t{factor.numeric ? 1 : 0}, to_text(levels)}));
  }
  for (const PlannedRow& row : rows) {
    Json settings;
    for (std::size_t f = 0; f < study.factors.size(); ++f) {
      settings[study.factors[f].name] = json_of(study.factors[f].levels[row.levels[f]]);
    }
    QT_TRY(database_.run(
        "INSERT INTO runs(id, cell, repeat, block, position, origin, settings, status) "
        "VALUES(?,?,?,?,?,?,?,'planned')",
        {row.position + 1, row.cell, row.repeat, row.block, row.position,
         std::string(row.simulated ? "simulated" : "measured"), to_text(settings)}));
  }
  return database_.run("COMMIT");
}

Result<std::string> StudyStore::get(const std::string& key) const {
  return database_.get(key);
}

Status StudyStore::set(const std::string& key, const std::string& value) {
  return database_.set(key, value);
}

Result<std::int64_t> StudyStore::reclaim() {
  QT_ASSIGN(const RowCounts before, counts());
  QT_TRY(database_.run(
      "UPDATE runs SET status = 'planned', command = NULL, started = NULL WHERE status = "
      "'running'"));
  return before.running;
}

Result<std::vector<StoredRow>> StudyStore::planned() const {
  QT_ASSIGN(const auto rows,
            database_.query("SELECT id, origin, settings FROM runs WHERE status = 'planned' "
                            "ORDER BY position"));
  std::vector<StoredRow> found;
  for (const SqlRow& row : rows) {
    QT_ASSIGN(Json settings, parse_json(text_in(row[2]), "study.sqlite, settings"));
    found.push_back({integer_in(row[0]), text_in(row[1]) == "simulated", std::move(settings)});
  }
  return found;
}

Result<std::vector<StudyStore::Loss>> StudyStore::losses() const {
  QT_ASSIGN(const auto rows,
            database_.query("SELECT id, settings, final_loss FROM runs WHERE status = 'done' AND "
                            "final_loss IS NOT NULL ORDER BY id"));
  std::vector<Loss> found;
  for (const SqlRow& row : rows) {
    QT_ASSIGN(Json settings, parse_json(text_in(row[1]), "study.sqlite, settings"));
    found.push_back({{integer_in(row[0]), false, std::move(settings)}, real_in(row[2])});
  }
  return found;
}

Result<RowCounts> StudyStore::counts() const {
  QT_ASSIGN(const auto rows, database_.query("SELECT status, count(*) FROM runs GROUP BY status"));
  RowCounts counts;
  for (const SqlRow& row : rows) {
    const std::string status = text_in(row[0]);
    const std::int64_t count = integer_in(row[1]);
    (status == "planned"      ? counts.planned
     : status == "running"    ? counts.running
     : status == "done"       ? counts.done
     : status == "impossible" ? counts.impossible
                              : counts.failed) += count;
  }
  return counts;
}

Result<std::vector<std::pair<std::string, std::int64_t>>> StudyStore::reasons(
    const std::string& status) const {
  QT_ASSIGN(const auto rows,
            database_.query("SELECT reason, count(*) AS n FROM runs WHERE status = ? GROUP BY "
                            "reason ORDER BY n DESC, reason",
                            {status}));
  std::vector<std::pair<std::string, std::int64_t>> found;
  for (const SqlRow& row : rows) found.emplace_back(text_in(row[0]), integer_in(row[1]));
  return found;
}

Status StudyStore::start(std::int64_t id, const std::string& command) {
  return database_.run(
      "UPDATE runs SET status = 'running', command = ?, started = ?, host = ?, version = ? WHERE "
      "id = ?",
      {command, seconds_since_1970(), host_name_here(), std::string(QUINTET_VERSION), id});
}

Status StudyStore::finish(std::int64_t id, const RowResult& result) {
  SqlValue exit, loss;
  if (result.exit) exit = *result.exit;
  if (result.final_loss) loss = *result.final_loss;
  return database_.run(
      "UPDATE runs SET status = ?, reason = ?, finished = ?, exit = ?, step_seconds = ?, "
      "step_seconds_all = ?, tokens_per_second = ?, memory_bytes = ?, host_bytes = ?, bytes_sent = "
      "?, books = ?, final_loss = ?, fingerprint = ?, host = ?, version = ? WHERE id = ?",
      {result.status, result.reason.empty() ? SqlValue() : SqlValue(result.reason),
       seconds_since_1970(), exit, if_done(result, result.median_seconds),
       if_done(result, to_text(Json(result.step_seconds))),
       if_done(result, result.tokens_per_second), if_done(result, result.memory_bytes),
       if_done(result, result.host_bytes), if_done(result, result.bytes_sent),
       if_done(result, to_text(result.books)), loss, if_done(result, result.fingerprint),
       host_name_here(), std::string(QUINTET_VERSION), id});
}

Status StudyStore::put_back(std::int64_t id) {
  return database_.run(
      "UPDATE runs SET status = 'planned', command = NULL, started = NULL WHERE id = ?", {id});
}

}  // namespace quintet
