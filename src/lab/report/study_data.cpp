#include "lab/report/study_data.h"

#include <algorithm>
#include <memory>

#include <sqlite3.h>

#include "base/text.h"
#include "lab/factor_name.h"
#include "lab/plot/markup.h"

namespace quintet {
namespace {

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct EndStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, EndStatement>;

class StudyReader {
 public:
  static Result<StudyData> read(const Path& folder) {
    StudyReader reader;
    reader.path_ = (folder / "study.sqlite").string();
    if (!std::filesystem::exists(reader.path_)) {
      return bad_input("{}: there is no study here (study.sqlite is missing)", folder.string());
    }
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(reader.path_.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
    reader.database_.reset(opened);
    if (code != SQLITE_OK) return reader.error();
    sqlite3_busy_timeout(opened, 5000);  // a study may be running
    QT_TRY(reader.read_about());
    QT_TRY(reader.read_factors());
    QT_TRY(reader.read_runs());
    return std::move(reader.study_);
  }

 private:
  Error error() const {
    return bad_input("{}: cannot be read as the store of a study: {}", path_,
                     database_ ? sqlite3_errmsg(database_.get()) : "out of memory");
  }

  // Calls `row` for each row of a query.
  template <class Row>
  Status each(const char* query, Row row) {
    sqlite3_stmt* prepared = nullptr;
    if (sqlite3_prepare_v2(database_.get(), query, -1, &prepared, nullptr) != SQLITE_OK) {
      return error();
    }
    const Statement statement(prepared);
    while (true) {
      const int code = sqlite3_step(prepared);
      if (code == SQLITE_DONE) return {};
      if (code != SQLITE_ROW) return error();
      QT_TRY(row(prepared));
    }
  }

  static std::string text(sqlite3_stmt* row, int column) {
    const auto* bytes = sqlite3_column_text(row, column);
    if (bytes == nullptr) return "";
    return printable_utf8({reinterpret_cast<const char*>(bytes),
                           static_cast<std::size_t>(sqlite3_column_bytes(row, column))});
  }
  // What is no number, or no quantity of anything, is unknown.
  static double number(sqlite3_stmt* row, int column) {
    const int type = sqlite3_column_type(row, column);
    if (type != SQLITE_INTEGER && type != SQLITE_FLOAT) return kUnknown;
    const double value = sqlite3_column_double(row, column);
    return std::isfinite(value) ? value : kUnknown;
  }

  Status read_about() {
    return each("SELECT key, value FROM study", [&](sqlite3_stmt* row) -> Status {
      study_.about[text(row, 0)] = text(row, 1);
      return {};
    });
  }

  Status read_factors() {
    return each("SELECT name, numeric, levels FROM factors ORDER BY position",
                [&](sqlite3_stmt* row) -> Status {
                  StudyFactor factor{text(row, 0), sqlite3_column_int(row, 1) != 0, {}};
                  QT_ASSIGN(const Json levels,
                            parse_json(text(row, 2), path_ + ": levels of " + factor.name));
                  if (!levels.is_array()) {
                    return bad_input("{}: levels of {} are not a list", path_, factor.name);
                  }
                  for (const Json& level : levels) factor.levels.push_back(level_text(level));
                  study_.factors.push_back(std::move(factor));
                  return {};
                });
  }

  Status read_runs() {
    return each(
        "SELECT id, cell, repeat, block, position, origin, settings, status, reason, command, exit,"
        " step_seconds, tokens_per_second, memory_bytes, host_bytes, bytes_sent, final_loss, books,"
        " fingerprint, host, version FROM runs ORDER BY id",
        [&](sqlite3_stmt* row) -> Status {
          StudyRun run;
          run.id = sqlite3_column_int64(row, 0);
          run.cell = sqlite3_column_int64(row, 1);
          run.repeat = sqlite3_column_int64(row, 2);
          run.block = sqlite3_column_int64(row, 3);
          run.position = sqlite3_column_int64(row, 4);
          run.simulated = text(row, 5) == "simulated";
          run.status = text(row, 7);
          run.reason = text(row, 8);
          run.command = text(row, 9);
          run.exit = sqlite3_column_int64(row, 10);
          run.step_seconds = number(row, 11);
          run.tokens_per_second = number(row, 12);
          run.memory_bytes = number(row, 13);
          run.host_bytes = number(row, 14);
          run.bytes_sent = number(row, 15);
          run.final_loss = number(row, 16);
          run.fingerprint = text(row, 18);
          run.host = text(row, 19);
          run.version = text(row, 20);
          QT_TRY(read_settings(text(row, 6), run));
          QT_TRY(read_breakdown(text(row, 17), run));
          study_.runs.push_back(std::move(run));
          return {};
        });
  }

  Status read_settings(const std::string& json, StudyRun& run) const {
    const std::string where = fmt::format("{}: settings of run {}", path_, run.id);
    QT_ASSIGN(const Json settings, parse_json(json, where));
    for (const StudyFactor& factor : study_.factors) {
      const auto found = settings.is_object() ? settings.find(factor.name) : settings.end();
      if (found == settings.end()) return bad_input("{}: {} is missing", where, factor.name);
      run.settings.push_back(level_text(*found));
    }
    return {};
  }

  Status read_breakdown(const std::string& json, StudyRun& run) const {
    if (json.empty()) return {};
    QT_ASSIGN(const Json books,
              parse_json(json, fmt::format("{}: time breakdown of run {}", path_, run.id)));
    for (const auto& [name, seconds] : books.items()) {
      if (!seconds.is_number() || name == "step") continue;
      const bool beside = name.starts_with("hidden");
      (beside ? run.beside : run.breakdown).emplace_back(name, seconds.get<double>());
    }
    return {};
  }

  std::string path_;
  Database database_;
  StudyData study_;
};

Result<double> response_of(const StudyRun& run, const std::string& name) {
  static const std::vector<std::pair<std::string, double StudyRun::*>> kResponses = {
      {"step_seconds", &StudyRun::step_seconds},
      {"seconds", &StudyRun::step_seconds},
      {"tokens_per_second", &StudyRun::tokens_per_second},
      {"memory_bytes", &StudyRun::memory_bytes},
      {"host_bytes", &StudyRun::host_bytes},
      {"bytes_sent", &StudyRun::bytes_sent},
      {"final_loss", &StudyRun::final_loss}};
  std::vector<std::string> names;
  for (const auto& [known, member] : kResponses) {
    if (known == name) return run.*member;
    names.push_back(known);
  }
  return usage_error("a study has no response \"{}\"; it has {}", name, join(names, ", "));
}

// What a factor is called in figures; its whole name where the short one would not be unique.
std::string short_name(const StudyData& study, const std::string& name) {
  const std::string wanted = short_factor_name(name);
  const auto alike =
      std::count_if(study.factors.begin(), study.factors.end(),
                    [&](const auto& factor) { return short_factor_name(factor.name) == wanted; });
  return alike == 1 ? wanted : name;
}

// The factors asked for, by either name, as positions among the study's.
Result<std::vector<std::size_t>> factors_named(const StudyData& study,
                                               const std::vector<std::string>& asked,
                                               const std::string& origin) {
  std::vector<std::string> names;
  for (const StudyFactor& factor : study.factors) {
    names.push_back(short_name(study, factor.name));
  }
  std::vector<std::size_t> places;
  for (const std::string& one : asked) {
    const std::string name = short_name(study, one);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string meant = nearest(name, names);
      return usage_error("{}: the study has no factor \"{}\"{}; it has {}", origin, one,
                         meant.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", meant),
                         join(names, ", "));
    }
    places.push_back(static_cast<std::size_t>(found - names.begin()));
  }
  return places;
}

struct ChosenFactor {
  std::size_t place = 0;  // among the study's
  bool numeric = false;
};

Result<std::vector<ChosenFactor>> chosen_factors(const StudyData& study, const StudyChoice& choice,
                                                 const std::string& origin) {
  std::vector<std::string> all;
  for (const StudyFactor& factor : study.factors) all.push_back(factor.name);
  QT_ASSIGN(const auto places,
            factors_named(study, choice.factors.empty() ? all : choice.factors, origin));
  std::vector<ChosenFactor> chosen;
  std::vector<std::string> names;
  for (const std::size_t place : places) {
    const StudyFactor& factor = study.factors[place];
    names.push_back(short_name(study, factor.name));
    if (std::count(places.begin(), places.end(), place) > 1) {
      return usage_error("factor {} is named twice", names.back());
    }
    chosen.push_back({place, factor.numeric});
  }
  QT_ASSIGN(const auto numeric, factors_named(study, choice.numeric, origin));
  for (const std::size_t place : numeric) {
    const auto found = std::find(places.begin(), places.end(), place);
    if (found == places.end()) {
      return usage_error("numeric {} is none of the factors {}",
                         short_name(study, study.factors[place].name), join(names, ", "));
    }
    chosen[static_cast<std::size_t>(found - places.begin())].numeric = true;
  }
  return chosen;
}

// "12 failed, 4 impossible".
std::string count_by_status(const std::vector<const StudyRun*>& runs) {
  std::map<std::string, std::size_t> counts;
  for (const StudyRun* run : runs) ++counts[run->status];
  std::vector<std::string> words;
  for (const auto& [status, count] : counts) words.push_back(fmt::format("{} {}", count, status));
  return join(words, ", ");
}

// Why nothing is left to analyse: what rows there are, and why the first of them is of no use.
Error no_rows(const StudyData& study, const std::vector<const StudyRun*>& met,
              const StudyTables& tables, const StudyChoice& choice, const std::string& origin) {
  const std::string all = fmt::format("{}: there are no rows to analyse", origin);
  if (study.runs.empty()) return bad_input("{}: the study has none", all);
  if (met.empty()) {
    std::vector<const StudyRun*> every;
    for (const StudyRun& run : study.runs) every.push_back(&run);
    return bad_input("{}: none has {}; the study has {}", all, describe(choice.conditions),
                     count_by_status(every));
  }
  std::string why;
  const StudyRun& first = *met.front();
  if (!tables.notes.empty() && first.status == "done") {
    why = "; " + tables.notes.back();
  } else if (!first.reason.empty()) {
    why = fmt::format("; run {} is {}: {}", first.id, first.status, first.reason);
  }
  return bad_input("{}: {}{}{}", all, count_by_status(met),
                   choice.conditions.empty() ? "" : " with " + describe(choice.conditions), why);
}

}  // namespace

std::string StudyData::text(const std::string& key) const {
  const auto found = about.find(key);
  return found == about.end() ? "" : found->second;
}

std::string level_text(const Json& level) {
  return level.is_string() ? level.get<std::string>() : to_text(level);
}

Result<StudyData> read_study(const Path& folder) {
  return StudyReader::read(folder);
}

Result<StudyTables> tables_from_study(const StudyData& study, const StudyChoice& choice,
                                      const std::string& origin) {
  QT_ASSIGN(const auto chosen, chosen_factors(study, choice, origin));
  StudyTables tables;
  Table& measured = tables.measured;
  measured.response = choice.response.empty() ? "step_seconds" : choice.response;
  for (const auto& [place, numeric] : chosen) {
    const StudyFactor& factor = study.factors[place];
    const std::string name = short_name(study, factor.name);
    auto made = make_factor(name, factor.levels, numeric);
    if (!made.ok()) {
      tables.notes.push_back(made.error().message + "; taken as names");
      made = make_factor(name, factor.levels, false);
    }
    measured.factors.push_back(std::move(made).value());
  }
  measured.more_is_better = is_rate(measured.response);
  measured.time = "step_seconds";
  std::vector<bool> meets(study.runs.size(), true);
  for (const Condition& condition : choice.conditions) {
    QT_ASSIGN(const auto place, factors_named(study, {condition.name}, origin));
    std::vector<std::string> settings;
    for (const StudyRun& run : study.runs) settings.push_back(run.settings[place[0]]);
    const std::vector<bool> meant = levels_meant(settings, condition.level);
    for (std::size_t r = 0; r < meets.size(); ++r) meets[r] = meets[r] && meant[r];
  }
  Table& simulated = tables.simulated = measured;
  std::map<std::int64_t, std::size_t> blocks;
  std::map<std::vector<std::string>, std::size_t> settings;
  std::vector<const StudyRun*> met;
  for (std::size_t r = 0; r < study.runs.size(); ++r) {
    if (!meets[r]) continue;
    const StudyRun& run = study.runs[r];
    met.push_back(&run);
    if (run.status != "done") continue;
    Observation row;
    row.setting = settings.try_emplace(run.settings, settings.size()).first->second;
    row.seconds = run.step_seconds > 0 ? run.step_seconds : kUnknown;
    QT_ASSIGN(row.response, response_of(run, measured.response));
    if (!(row.response > 0)) {
      tables.notes.push_back(
          fmt::format("run {} is done but has no {}", run.id, measured.response));
      continue;
    }
    for (std::size_t f = 0; f < chosen.size(); ++f) {
      const auto level = find_level(measured.factors[f], run.settings[chosen[f].place]);
      if (!level) {
        return bad_input("{}: run {} has {} = {}, which is none of the study's levels", origin,
                         run.id, measured.factors[f].name, run.settings[chosen[f].place]);
      }
      row.level.push_back(*level);
    }
    row.memory_bytes = run.memory_bytes > 0 ? run.memory_bytes : kUnknown;
    row.tokens_per_second = run.tokens_per_second > 0 ? run.tokens_per_second : kUnknown;
    row.breakdown = run.breakdown;
    if (!run.simulated) row.block = blocks.try_emplace(run.block, blocks.size()).first->second;
    (run.simulated ? simulated : measured).rows.push_back(std::move(row));
  }
  if (measured.rows.empty() && simulated.rows.empty()) {
    return no_rows(study, met, tables, choice, origin);
  }
  measured.blocks = std::max<std::size_t>(blocks.size(), 1);
  return tables;
}

}  // namespace quintet
