#include <algorithm>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "lab/host_list.h"
#include "lab/mpirun.h"
#include "lab/restarts.h"

namespace quintet {
namespace {

struct LaunchOptions {
  MpirunOptions mpirun;
  std::string hostfile;
  int restarts = 0;
  bool print_only = false;
  std::vector<std::string> arguments;
};

// What `train` would make of these arguments.
Result<RunConfig> config_of(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] != "train") {
    return usage_error(
        "--restarts is for `train`: only a run with checkpoints can be started again");
  }
  CLI::App app;
  const RunOptions options(app);
  arguments.erase(arguments.begin());
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return usage_error("train: {}", error.what());
  }
  return options.load();
}

Status run(LaunchOptions options) {
  if (!options.hostfile.empty()) {
    QT_ASSIGN(const auto hosts, read_hostfile(options.hostfile));
    options.mpirun.hosts = hosts_text(hosts);
  }
  if (options.restarts > 0 && !options.print_only) {
    QT_ASSIGN(const RunConfig config, config_of(options.arguments));
    return run_with_restarts(options.mpirun, options.arguments, config, options.restarts);
  }
  QT_ASSIGN(const auto line, mpirun_line(options.mpirun, options.arguments));
  fmt::print(stderr, "{}\n", shell_line(line));
  if (options.print_only) return {};
  const CommandEnd end = run_to_end(line);
  if (!end.error) return {};
  // Without a message, where a rank has said it.
  return end.said ? Error{end.error->code, ""} : *end.error;
}

}  // namespace

void add_launch(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("launch", "start a command on several ranks, through mpirun");
  auto options = std::make_shared<LaunchOptions>();
  options->mpirun.ranks = 0;
  CLI::Option* ranks = command->add_option("-n,--ranks", options->mpirun.ranks, "how many ranks")
                           ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--threads", options->mpirun.threads,
                   "CPU threads of each rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1024));
  command->add_option("--hosts", options->mpirun.hosts,
                      "mpirun's list of hosts, e.g. node1:8,node2:8");
  command
      ->add_option("--hostfile", options->hostfile,
                   "mpirun's file of hosts instead: lines such as node1 slots=8")
      ->excludes("--hosts");
  command
      ->add_option("--restarts", options->restarts,
                   "start `train` again this many times when ranks were lost, from its newest "
                   "checkpoint and without the hosts that no longer answer")
      ->check(CLI::Range(0, 1000000));
  command->add_option(
      "--cluster", options->mpirun.cluster,
      "an emulated cluster that is up (`quintet cluster`); without -n all its ranks");
  command->add_flag("--print", options->print_only, "only print the mpirun line");
  command->add_option("command", options->arguments, "what to run, after --")->required();
  command->footer(
      "Example: quintet launch -n 4 -- train examples/tiny.toml --tp 2 --zero 1\n"
      "Going on after a loss: quintet launch --hosts node1:8,node2:8 -n 16 --restarts 10 -- train "
      "run.toml\n"
      "Under SLURM: srun -n 64 quintet train run.toml --tp 8\n"
      "examples/slurm.sh is a script that goes on after time limits and lost nodes.");
  command->callback([options, ranks, &action] {
    if (ranks->count() == 0 && options->mpirun.cluster.empty()) {
      throw CLI::RequiredError("-n");
    }
    action = [options] { return run(*options); };
  });
}

}  // namespace quintet
