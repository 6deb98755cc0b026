#include "cli/commands.h"
#include "lab/mpirun.h"

namespace quintet {
namespace {

struct LaunchOptions {
  MpirunOptions mpirun;
  bool print_only = false;
  std::vector<std::string> arguments;
};

Status run(const LaunchOptions& options) {
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
                   "CPU threads of each rank; 0: share out the cores")
      ->check(CLI::Range(0, 1024));
  command->add_option("--hosts", options->mpirun.hosts,
                      "mpirun's list of hosts, e.g. node1:8,node2:8");
  command->add_option(
      "--cluster", options->mpirun.cluster,
      "an emulated cluster that is up (`quintet cluster`); without -n all its ranks");
  command->add_flag("--print", options->print_only, "only print the mpirun line");
  command->add_option("command", options->arguments, "what to run, after --")->required();
  command->footer(
      "Example: quintet launch -n 4 -- train examples/tiny.toml --tp 2 --zero 1\n"
      "Under SLURM use srun instead: srun -n 64 quintet train run.toml --tp 8");
  command->callback([options, ranks, &action] {
    if (ranks->count() == 0 && options->mpirun.cluster.empty()) {
      throw CLI::RequiredError("-n");
    }
    action = [options] { return run(*options); };
  });
}

}  // namespace quintet
