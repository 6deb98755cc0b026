#include "lab/folder_database.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"

namespace quintet {
namespace {

Path file_in(const Path& folder, const FolderDatabase::Kind& kind) {
  return folder / fmt::format("{}.sqlite", kind.name);
}

Error nothing_in(const Path& folder, const FolderDatabase::Kind& kind) {
  return bad_input("{}: no {} is in this folder ({}.sqlite is missing)", folder.string(), kind.name,
                   kind.name);
}

}  // namespace

FolderDatabase::FolderDatabase(Path folder, Kind kind, SqlDatabase database, int lock)
    : folder_(std::move(folder)),
      kind_(std::move(kind)),
      database_(std::move(database)),
      lock_(lock) {}
FolderDatabase::FolderDatabase(FolderDatabase&& other) noexcept
    : folder_(std::move(other.folder_)),
      kind_(std::move(other.kind_)),
      database_(std::move(other.database_)),
      lock_(std::exchange(other.lock_, -1)) {}
FolderDatabase::~FolderDatabase() {
  if (lock_ >= 0) ::close(lock_);
}

Result<FolderDatabase> FolderDatabase::open(const Path& folder, const Kind& kind, bool create) {
  const Path file = file_in(folder, kind);
  if (create) {
    QT_TRY(make_directories(folder));
  } else if (!std::filesystem::exists(file)) {
    return nothing_in(folder, kind);
  }
  const Path lock_file = folder / "lock";
  const int lock = ::open(lock_file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock < 0) return io_error("{}: {}", lock_file.string(), std::strerror(errno));
  // A process that was killed can have forked a moment before: the child has the lock, too, until
  // it has been on a core and noticed. That takes a while on a busy machine.
  constexpr double kPatience = 2;
  const double began = now();
  while (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK && now() - began < kPatience) {
      ::usleep(2000);
      continue;
    }
    ::close(lock);
    return usage_error("{}: another process is running this {}", folder.string(), kind.name);
  }
  auto opened = SqlDatabase::open(file.string(),
                                  create ? SqlDatabase::Mode::kCreate : SqlDatabase::Mode::kWrite);
  if (!opened.ok()) {
    ::close(lock);
    return opened.error();
  }
  FolderDatabase database(folder, kind, std::move(opened).value(), lock);
  // One file whenever nothing is being written.
  QT_TRY(database.run("PRAGMA journal_mode=DELETE"));
  QT_TRY(database.run("PRAGMA synchronous=FULL"));
  return database;
}

Result<FolderDatabase> FolderDatabase::view(const Path& folder, const Kind& kind) {
  const Path file = file_in(folder, kind);
  if (!std::filesystem::exists(file)) return nothing_in(folder, kind);
  QT_ASSIGN(SqlDatabase opened, SqlDatabase::open(file.string(), SqlDatabase::Mode::kRead));
  FolderDatabase database(folder, kind, std::move(opened), -1);
  QT_ASSIGN(const bool begun, database.begun());
  if (!begun) return bad_input("{}: not the database of a {}", file.string(), kind.name);
  return database;
}

Result<bool> FolderDatabase::begun() const {
  QT_ASSIGN(const auto tables,
            query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"));
  if (tables.empty()) return false;
  std::string names;
  for (const SqlRow& row : tables) names += text_in(row[0]) + " ";
  if (names == kind_.table_names) return true;
  return bad_input("{}: a database of something else (tables {}); nothing was changed",
                   file_in(folder_, kind_).string(), names);
}

Status FolderDatabase::make_tables() const {
  for (const char* table : kind_.tables) QT_TRY(run(table));
  return {};
}

Result<std::string> FolderDatabase::get(const std::string& key) const {
  QT_ASSIGN(const auto rows,
            query(fmt::format("SELECT value FROM {} WHERE key = ?", kind_.name), {key}));
  return rows.empty() ? std::string() : text_in(rows[0][0]);
}

Status FolderDatabase::set(const std::string& key, const std::string& value) const {
  return run(fmt::format("INSERT OR REPLACE INTO {} VALUES(?,?)", kind_.name), {key, value});
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name_here() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace quintet
