#include <csignal>
#include <cstring>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/commands.h"

namespace quintet {
namespace {

struct LaunchOptions {
  int ranks = 1;
  int threads = 0;
  std::string hosts;
  bool print_only = false;
  std::vector<std::string> arguments;
};

// The mpirun line for a run on this machine or on a list of hosts.
std::vector<std::string> compose(const LaunchOptions& options, const std::string& program) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : std::max(1, cores / options.ranks);
  const bool oversubscribed = options.hosts.empty() && options.ranks * threads > cores;
  std::vector<std::string> line = {"mpirun", "-n", std::to_string(options.ranks)};
  const auto add = [&](std::initializer_list<std::string> words) {
    line.insert(line.end(), words);
  };
  if (::geteuid() == 0) add({"--allow-run-as-root"});
  if (!options.hosts.empty()) add({"--host", options.hosts});
  if (oversubscribed) {
    // Ranks that wait must let others run; binding would pile them up on the same cores.
    add({"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-x",
         "OMP_WAIT_POLICY=passive"});
  } else {
    add({"--map-by", fmt::format("slot:PE={}", threads), "--bind-to", "core"});
  }
  add({"-x", fmt::format("OMP_NUM_THREADS={}", threads), program});
  line.insert(line.end(), options.arguments.begin(), options.arguments.end());
  return line;
}

std::string quoted(const std::string& word) {
  if (word.find_first_of(" \t\"'\\$&|;<>()*?[]{}#~") == std::string::npos && !word.empty())
    return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

pid_t child = 0;

Status run(const LaunchOptions& options) {
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
    return io_error("cannot find out the path of this program: {}", std::strerror(errno));
  }
  const std::vector<std::string> line = compose(options, self);
  std::vector<std::string> shown;
  for (const std::string& word : line) shown.push_back(quoted(word));
  fmt::print(stderr, "{}\n", join(shown, " "));
  if (options.print_only) return {};

  std::vector<char*> argv;
  for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  child = ::fork();
  if (child < 0) return io_error("cannot start mpirun: {}", std::strerror(errno));
  if (child == 0) {
    ::execvp(argv[0], argv.data());
    fmt::print(stderr, "quintet: cannot start mpirun: {} (Debian: openmpi-bin)\n",
               std::strerror(errno));
    ::_exit(127);
  }
  // What ends us ends the run; a terminal's Ctrl-C reaches mpirun by itself.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, [](int signal) { ::kill(child, signal); });
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0) return {};
  if (code == 127) return make_error(ErrorCode::kIo, "mpirun could not be started");
  if (code == 130) return make_error(ErrorCode::kInterrupted, "interrupted");
  // mpirun passes on the first rank's code, or 128 + the signal that killed it.
  if (code > 128) {
    return make_error(ErrorCode::kPeerLost, "a rank was killed by signal {} ({})", code - 128,
                      ::strsignal(code - 128));
  }
  return make_error(static_cast<ErrorCode>(code), "the run ended with exit code {}", code);
}

}  // namespace

void add_launch(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("launch", "start a command on several ranks, through mpirun");
  auto options = std::make_shared<LaunchOptions>();
  command->add_option("-n,--ranks", options->ranks, "how many ranks")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--threads", options->threads,
                   "CPU threads of each rank; 0: share out the cores")
      ->check(CLI::Range(0, 1024));
  command->add_option("--hosts", options->hosts, "mpirun's list of hosts, e.g. node1:8,node2:8");
  command->add_flag("--print", options->print_only, "only print the mpirun line");
  command->add_option("command", options->arguments, "what to run, after --")->required();
  command->footer(
      "Example: quintet launch -n 4 -- train examples/tiny.toml --tp 2 --zero 1\n"
      "Under SLURM use srun instead: srun -n 64 quintet train run.toml --tp 8");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
