#include "lab/sweep.h"

#include <filesystem>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/run_options.h"

namespace quintet {
namespace {

struct SweepOptions {
  explicit SweepOptions(CLI::App& command) : run(command) {}
  RunOptions run;
  std::int64_t ranks = 4;
  std::vector<std::string> layouts;
  std::string folder;
};

// Layouts round differently; a curve further from the others than this has another cause.
constexpr double kSameCurve = 1e-3;

Status sweep(const SweepOptions& options) {
  QT_ASSIGN(RunConfig config, options.run.load());
  const auto layouts = options.layouts.empty() ? usual_layouts(options.ranks) : options.layouts;
  const bool keep = !options.folder.empty();
  const Path folder =
      keep ? Path(options.folder)
           : std::filesystem::temp_directory_path() / fmt::format("quintet-sweep-{}", ::getpid());
  std::vector<SweepRow> rows;
  const std::atomic<bool>& interrupted = interrupt_flag();
  Status status;
  for (std::size_t i = 0; i < layouts.size() && status.ok(); ++i) {
    fmt::print(stderr, "{}/{}  {}\n", i + 1, layouts.size(), layouts[i]);
    auto row =
        run_layout(config, layouts[i], options.ranks,
                   (folder / fmt::format("{:02}-{}", i + 1, layouts[i])).string(), &interrupted);
    if (row.ok()) {
      rows.push_back(std::move(row).value());
    } else {
      status = row.error();
    }
  }
  std::error_code ignored;
  if (!keep) std::filesystem::remove_all(folder, ignored);
  QT_TRY(status);
  compare_losses(rows);
  const SweepRow* first = first_that_ran(rows);
  fmt::print(
      "\n{} on {} ranks. Loss: of the last step, and the curve's largest relative difference to "
      "that of\nthe first row that ran. Speed: compared with that row. Memory: of the rank that "
      "takes most. "
      "Bytes: sent by one rank per step, "
      "by method.\n\n{}",
      first != nullptr ? first->run.model : config.model.name, options.ranks, table_of(rows));
  double worst = 0;
  std::size_t failed = 0;
  ErrorCode code = ErrorCode::kInternal;
  for (const SweepRow& row : rows) {
    worst = std::max(worst, row.loss_distance);
    if (row.failure.empty()) continue;
    if (failed++ == 0) code = row.code;
  }
  if (failed > 0) return make_error(code, "{} of {} layouts did not run", failed, rows.size());
  if (worst > kSameCurve) {
    return make_error(ErrorCode::kMismatch,
                      "the loss curves differ by up to {:.1e}, more than rounding explains", worst);
  }
  fmt::print("\nAll {} loss curves agree within {:.1e} at every step.\n", rows.size(), worst);
  return {};
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "sweep", "train the same model under many layouts and lay the costs side by side");
  auto options = std::make_shared<SweepOptions>(*command);
  command->add_option("-n,--ranks", options->ranks, "ranks of each run, all on this machine")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--layout", options->layouts,
                   "a layout, e.g. --layout tp=2,zero=1 (repeatable); without any, the usual ones")
      ->type_name("KEY=VALUE,...")
      ->allow_extra_args(false);
  command->add_option("--keep", options->folder,
                      "folder that keeps each run's metrics, summary and log");
  command->footer(
      "The global batch is batch.micro_batch x batch.accumulate; it is the same for every layout.\n"
      "Exits with 4 if loss curves differ; where a layout did not run, with the code of the first\n"
      "that did not (2: it was refused).\n"
      "Example: quintet sweep -n 4 examples/layouts.toml");
  command->callback([options, &action] { action = [options] { return sweep(*options); }; });
}

}  // namespace quintet
