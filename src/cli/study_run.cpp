// quintet study run, resume and status.
#include <map>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "lab/study_runner.h"

namespace quintet {
namespace {

struct StudyRunOptions {
  std::string file, folder;
  bool unshaped = false, keep_runs = false, dry_run = false;
};

void print_reasons(const StudyStore& store, const std::string& status) {
  const auto reasons = store.reasons(status);
  if (!reasons.ok()) return;
  for (const auto& [reason, count] : reasons.value()) {
    fmt::print("  {:>6} {}: {}\n", count, status, reason);
  }
}

// Goes on with what is in the store, and says what there is in the end.
Status go_on(const StudyFile& study, StudyStore& store, const StudyRunOptions& options) {
  StudyOptions how;
  how.folder = options.folder;
  how.unshaped = options.unshaped;
  how.keep_runs = options.keep_runs;
  how.interrupted = &interrupt_flag();
  QT_TRY(run_study(study, store, how));
  QT_ASSIGN(const RowCounts counts, store.counts());
  fmt::print("{}: {} rows, {} done, {} impossible, {} failed; {}\n", study.study.name, counts.all(),
             counts.done, counts.impossible, counts.failed,
             (Path(options.folder) / "study.sqlite").string());
  print_reasons(store, "failed");
  return {};
}

// What would run, without running it.
void print_plan(const StudyFile& study, const std::vector<PlannedRow>& rows) {
  std::map<std::string, std::int64_t> impossible;
  std::set<std::int64_t> cells, blocks;
  std::int64_t simulated = 0, out = 0;
  for (const PlannedRow& row : rows) {
    cells.insert(row.cell);
    blocks.insert(row.block);
    simulated += row.simulated ? 1 : 0;
    if (const auto run = run_of(study, row.levels); !run.ok()) {
      ++impossible[run.error().message];
      ++out;
    }
  }
  fmt::print("{}: {} combinations of levels, {} rows ({} measured in {} block{}, {} simulated)\n",
             study.study.name, cells.size(), rows.size(),
             static_cast<std::int64_t>(rows.size()) - simulated, blocks.size(),
             blocks.size() == 1 ? "" : "s", simulated);
  fmt::print("{} of them cannot run; memory is not looked at\n", out);
  for (const auto& [reason, count] : impossible) fmt::print("  {:>6} {}\n", count, reason);
}

Status study_run(StudyRunOptions options) {
  QT_ASSIGN(const std::string text, read_file(options.file));
  QT_ASSIGN(const StudyFile study, StudyFile::parse(text, options.file));
  QT_ASSIGN(const std::vector<PlannedRow> rows, rows_of(study));
  if (options.dry_run) {
    print_plan(study, rows);
    return {};
  }
  if (options.folder.empty()) options.folder = "runs/study-" + study.study.name;
  QT_ASSIGN(StudyStore store, StudyStore::open(options.folder, true));
  QT_ASSIGN(const bool begun, store.holds_study());
  if (!begun) {
    QT_TRY(store.begin(study, rows));
  } else {
    QT_ASSIGN(const std::string hash, store.get("hash"));
    if (hash != study.hash) {
      QT_ASSIGN(const std::string name, store.get("name"));
      return usage_error(
          "{} holds another study ({}, {}; this one is {}, {}): choose another --out, or go on "
          "with "
          "that one by `quintet study resume {}`. Nothing was changed",
          options.folder, name, hash, study.study.name, study.hash, options.folder);
    }
  }
  QT_ASSIGN(const RowCounts counts, store.counts());
  fmt::print(
      stderr, "{}: {} rows{}\n", study.study.name, counts.all(),
      counts.finished() > 0 ? fmt::format(", {} of them done before", counts.finished()) : "");
  return go_on(study, store, options);
}

Status study_resume(const StudyRunOptions& options) {
  QT_ASSIGN(StudyStore store, StudyStore::open(options.folder, false));
  QT_ASSIGN(const bool begun, store.holds_study());
  if (!begun) {
    return bad_input("{}: the study ended before it began; start it again with `quintet study run`",
                     options.folder);
  }
  QT_ASSIGN(const std::string text, store.get("file"));
  QT_ASSIGN(StudyFile study, StudyFile::parse(text, options.folder + " (study file)"));
  QT_ASSIGN(study.study.name, store.get("name"));
  return go_on(study, store, options);
}

Status study_status(const std::string& folder, bool json) {
  QT_ASSIGN(const StudyStore store, StudyStore::view(folder));
  QT_ASSIGN(const RowCounts counts, store.counts());
  QT_ASSIGN(const std::string name, store.get("name"));
  QT_ASSIGN(const std::string question, store.get("question"));
  if (json) {
    QT_ASSIGN(const std::string hash, store.get("hash"));
    const Json all = {{"name", name},
                      {"question", question},
                      {"hash", hash},
                      {"rows", counts.all()},
                      {"planned", counts.planned},
                      {"running", counts.running},
                      {"done", counts.done},
                      {"impossible", counts.impossible},
                      {"failed", counts.failed}};
    fmt::print("{}\n", to_text(all, 2));
    return {};
  }
  fmt::print("{}: {}\n{} rows: {} done, {} impossible, {} failed, {} running, {} planned\n", name,
             question, counts.all(), counts.done, counts.impossible, counts.failed, counts.running,
             counts.planned);
  print_reasons(store, "impossible");
  print_reasons(store, "failed");
  return {};
}

void add_run_flags(CLI::App& command, StudyRunOptions& options) {
  command.add_flag("--unshaped", options.unshaped,
                   "no emulated cluster: all ranks on this machine, links as they are");
  command.add_flag("--keep-runs", options.keep_runs,
                   "keep the log, metrics and summary of every row, not only of failed ones");
}

}  // namespace

void add_study_run(CLI::App& study, Action& action) {
  CLI::App* command = study.add_subcommand("run", "run a study, or go on with it");
  auto options = std::make_shared<StudyRunOptions>();
  command->add_option("file", options->file, "the study (TOML, docs/studies.md)")->required();
  command->add_option("--out", options->folder,
                      "folder for its rows (study.sqlite); default runs/study-NAME");
  command->add_flag("--dry-run", options->dry_run, "check the file and say what would run");
  add_run_flags(*command, *options);
  command->footer("Example: quintet study run studies/demo-local.toml --out runs/demo");
  command->callback([options, &action] { action = [options] { return study_run(*options); }; });
}

void add_study_resume(CLI::App& study, Action& action) {
  CLI::App* command = study.add_subcommand("resume", "go on with a study that was interrupted");
  auto options = std::make_shared<StudyRunOptions>();
  command->add_option("folder", options->folder, "the study's folder")->required();
  add_run_flags(*command, *options);
  command->footer("Example: quintet study resume runs/demo");
  command->callback([options, &action] { action = [options] { return study_resume(*options); }; });
}

void add_study_status(CLI::App& study, Action& action) {
  CLI::App* command = study.add_subcommand("status", "how far a study is, and what could not be");
  struct Options {
    std::string folder;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  command->add_option("folder", options->folder, "the study's folder")->required();
  command->add_flag("--json", options->json, "print JSON");
  command->footer("Example: quintet study status runs/demo");
  command->callback([options, &action] {
    action = [options] { return study_status(options->folder, options->json); };
  });
}

}  // namespace quintet
