// quintet search run, resume and status.
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "lab/search/search_runner.h"
#include "lab/search/trial_run.h"

namespace quintet {
namespace {

struct SearchCall {
  std::string file, folder;
  bool dry_run = false;
};

struct SearchCounts {
  std::map<std::string, std::int64_t> by_status;
  std::vector<std::pair<std::string, std::string>> reasons;  // status, reason
  std::int64_t steps = 0;
  double seconds = 0;
};

SearchCounts counts_of(const std::vector<Trial>& trials) {
  SearchCounts counts;
  std::int64_t highest = 0;
  for (const Trial& trial : trials) {
    const RungResult& last = trial.rungs.back();
    ++counts.by_status[last.status];
    if (trial.failed()) counts.reasons.emplace_back(last.status, last.reason);
    for (const RungResult& result : trial.rungs) counts.seconds += result.seconds;
    highest = std::max(highest, trial.level);
  }
  for (std::int64_t level = 0; level <= highest; ++level)
    counts.steps += steps_begun(trials, level);
  return counts;
}

void print_counts(const std::vector<Trial>& trials) {
  SearchCounts counts = counts_of(trials);
  fmt::print(
      "{} trials: {} done, {} diverged, {} out of memory, {} impossible, {} failed, {} running; {} "
      "steps, {:.1f} device-seconds\n",
      trials.size(), counts.by_status["done"], counts.by_status["diverged"],
      counts.by_status["out_of_memory"], counts.by_status["impossible"], counts.by_status["failed"],
      counts.by_status["running"], counts.steps, counts.seconds);
}

void print_best(const SearchFile& search, const std::vector<Trial>& trials) {
  const Trial* best = best_trial(trials);
  if (best == nullptr) {
    fmt::print("no trial has finished anything yet\n");
    return;
  }
  const auto reached = static_cast<std::size_t>(best->reached());
  fmt::print("best: trial {}{}, {} = {:.6g} after {} steps\n", best->id,
             search.levels() > 1
                 ? " on " + search.ladder.models[static_cast<std::size_t>(best->level)]
                 : "",
             search.search.objective, best->rungs[reached].value, best->rungs[reached].steps);
  for (const auto& [key, value] : best->settings)
    fmt::print("  {} = {}\n", key, setting_text(value));
}

Status go_on_searching(const SearchFile& search, SearchJournal& journal, const Path& folder) {
  SearchRunOptions how;
  how.folder = folder;
  how.interrupted = &interrupt_flag();
  QT_TRY(run_search(search, journal, how));
  QT_ASSIGN(const std::vector<Trial> trials, journal.trials());
  print_counts(trials);
  print_best(search, trials);
  QT_ASSIGN(const std::string best, write_best(search, trials, folder));
  if (best.empty()) {
    return make_error(ErrorCode::kNonFinite,
                      "no trial has a result; `quintet search status {}` says "
                      "why",
                      folder.string());
  }
  fmt::print("{}\n`quintet search report {}` makes a page of it\n", (folder / "best.toml").string(),
             folder.string());
  return {};
}

// What would run, without running it.
Status print_search_plan(const SearchFile& search) {
  const std::int64_t threads = threads_per_rank(search);
  fmt::print("{}: {} trials of {} parameters by {}, {}\n", search.search.name, search.search.trials,
             search.space.size(), search.search.sampler, search.search.objective);
  const std::vector<Trial> none;
  const SearchDecision first = decide(search, none, threads);
  const auto plan = search.plan_of(first.settings, 0, threads);
  if (plan.ok() && !search.simulated()) {
    std::vector<std::string> rungs;
    for (const std::int64_t steps : plan.value().rung_steps) rungs.push_back(std::to_string(steps));
    fmt::print("compared after {} steps; about {:.0f} steps in all\n", join(rungs, ", "),
               expected_steps(search, none, threads));
    QT_ASSIGN(const std::int64_t bytes, planned_bytes(plan.value().config, search.ranks()));
    fmt::print("a trial takes about {} and {} core(s)\n", human_bytes(static_cast<double>(bytes)),
               plan.value().config.train.threads * search.ranks());
  }
  fmt::print("the first: {}\n", settings_text(first.settings));
  return {};
}

Status search_run(SearchCall options) {
  QT_ASSIGN(const std::string text, read_file(options.file));
  QT_ASSIGN(const SearchFile search, SearchFile::parse(text, options.file));
  if (options.dry_run) return print_search_plan(search);
  if (options.folder.empty()) options.folder = "runs/search-" + search.search.name;
  QT_ASSIGN(SearchJournal journal, SearchJournal::open(options.folder, true));
  QT_ASSIGN(const bool begun, journal.holds_search());
  if (!begun) {
    QT_TRY(journal.begin(search, threads_per_rank(search)));
  } else {
    QT_ASSIGN(const std::string hash, journal.get("hash"));
    if (hash != search.hash) {
      QT_ASSIGN(const std::string name, journal.get("name"));
      return usage_error(
          "{} holds another search ({}, {}; this one is {}, {}): choose another --out, or go on "
          "with that one by `quintet search resume {}`. Nothing was changed",
          options.folder, name, hash, search.search.name, search.hash, options.folder);
    }
  }
  return go_on_searching(search, journal, options.folder);
}

Status search_resume(const std::string& folder) {
  QT_ASSIGN(SearchJournal journal, SearchJournal::open(folder, false));
  QT_ASSIGN(const bool begun, journal.holds_search());
  if (!begun) {
    return bad_input(
        "{}: the search ended before it began; start it again with `quintet search run`", folder);
  }
  QT_ASSIGN(const SearchFile search, journal.search());
  return go_on_searching(search, journal, folder);
}

Status search_status(const std::string& folder, bool json) {
  QT_ASSIGN(const SearchJournal journal, SearchJournal::view(folder));
  QT_ASSIGN(const SearchFile search, journal.search());
  QT_ASSIGN(const std::vector<Trial> trials, journal.trials());
  QT_ASSIGN(const std::string threads, journal.get("threads"));
  const double expected =
      expected_steps(search, trials, std::max(std::atoll(threads.c_str()), 1ll));
  const SearchCounts counts = counts_of(trials);
  if (json) {
    Json all = {{"name", search.search.name},
                {"question", search.search.question},
                {"hash", search.hash},
                {"objective", search.search.objective},
                {"trials", trials.size()},
                {"wanted", search.search.trials},
                {"steps", counts.steps},
                {"expected_steps", expected},
                {"device_seconds", counts.seconds}};
    Json by_status = Json::object();
    for (const auto& [status, count] : counts.by_status) by_status[status] = count;
    all["by_status"] = by_status;
    if (const Trial* best = best_trial(trials); best != nullptr) {
      Json settings = Json::object();
      for (const auto& [key, value] : best->settings)
        settings[key] = std::visit([](const auto& v) { return Json(v); }, value);
      all["best"] = {{"trial", best->id},
                     {"level", best->level},
                     {"rung", best->reached()},
                     {"value", best->value_at(best->reached())},
                     {"settings", settings}};
    }
    fmt::print("{}\n", to_text(all, 2));
    return {};
  }
  fmt::print("{}: {}\n", search.search.name, search.search.question);
  print_counts(trials);
  fmt::print("{} of about {:.0f} steps begun\n", counts.steps, expected);
  print_best(search, trials);
  for (const auto& [status, reason] : counts.reasons) fmt::print("  {}: {}\n", status, reason);
  return {};
}

}  // namespace

void add_search(CLI::App& app, Action& action) {
  CLI::App* search =
      app.add_subcommand("search", "find hyper-parameters on small models, for large ones");
  search->require_subcommand(1);
  add_search_run(*search, action);
  add_search_resume(*search, action);
  add_search_status(*search, action);
  add_search_report(*search, action);
  search->footer("Example: quintet search run examples/search.toml --out runs/search");
}

void add_search_run(CLI::App& search, Action& action) {
  CLI::App* command = search.add_subcommand("run", "run a search, or go on with it");
  auto options = std::make_shared<SearchCall>();
  command->add_option("file", options->file, "the search (TOML, docs/search.md)")
      ->required()
      ->type_name("FILE.toml");
  command
      ->add_option("--out", options->folder,
                   "folder for its journal (search.sqlite) and trials; default runs/search-NAME")
      ->type_name("DIR");
  command->add_flag("--dry-run", options->dry_run, "check the file and say what would run");
  command->footer(
      "Writes best.toml, ready for `quintet train`. Ctrl-C saves all trials; run or resume goes "
      "on.\n"
      "Example: quintet search run examples/search.toml --out runs/search");
  command->callback([options, &action] { action = [options] { return search_run(*options); }; });
}

void add_search_resume(CLI::App& search, Action& action) {
  CLI::App* command = search.add_subcommand("resume", "go on with a search that was interrupted");
  auto folder = std::make_shared<std::string>();
  command->add_option("folder", *folder, "the search's folder")->required()->type_name("DIR");
  command->footer("Example: quintet search resume runs/search");
  command->callback([folder, &action] { action = [folder] { return search_resume(*folder); }; });
}

void add_search_status(CLI::App& search, Action& action) {
  CLI::App* command = search.add_subcommand("status", "how far a search is, and the best so far");
  struct Options {
    std::string folder;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  command->add_option("folder", options->folder, "the search's folder")
      ->required()
      ->type_name("DIR");
  command->add_flag("--json", options->json, "print JSON");
  command->footer("Example: quintet search status runs/search");
  command->callback([options, &action] {
    action = [options] { return search_status(options->folder, options->json); };
  });
}

}  // namespace quintet
