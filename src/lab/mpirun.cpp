#include "lab/mpirun.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "lab/cluster.h"
#include "lab/host_list.h"
#include "lab/tool.h"
#include "parallel/outcome.h"

namespace quintet {
namespace {

std::string quoted(const std::string& word) {
  if (word.find_first_of(" \t\"'\\$&|;<>()*?[]{}#~") == std::string::npos && !word.empty())
    return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// Set by signals, for the one command that runs at a time.
std::atomic<int> stops_wanted = 0, saves_wanted = 0;
static_assert(std::atomic<int>::is_always_lock_free);

int signals_held = 0;

// An empty file that ranks on this host can leave their outcome in (parallel/outcome.h).
class OutcomeFile {
 public:
  OutcomeFile() {
    path_ = (std::filesystem::temp_directory_path() / "quintet-outcome-XXXXXX").string();
    const int file = ::mkstemp(path_.data());
    if (file >= 0) ::close(file);
  }
  OutcomeFile(const OutcomeFile&) = delete;
  OutcomeFile& operator=(const OutcomeFile&) = delete;
  ~OutcomeFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  std::optional<Error> read() const {
    std::ifstream file(path_);
    int code = 0;
    std::string message;
    if (!(file >> code) || file.get() != '\n' || !std::getline(file, message, '\0')) return {};
    return Error{static_cast<ErrorCode>(code),
                 message.substr(0, message.find_last_not_of('\n') + 1)};
  }

 private:
  std::string path_;
};

constexpr double kPollSeconds = 0.05;
// For mpirun to end after the ranks have said why they do, and again after being asked to.
constexpr double kPatience = 5;

}  // namespace

LaunchSignals::LaunchSignals() {
  if (signals_held++ == 0) {
    stops_wanted = 0;
    saves_wanted = 0;
  }
  struct sigaction action {};
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    action.sa_handler =
        kSignals[i] == SIGUSR1 ? [](int) { ++saves_wanted; } : [](int) { ++stops_wanted; };
    ::sigaction(kSignals[i], &action, &before_[i]);
  }
}

LaunchSignals::~LaunchSignals() {
  --signals_held;
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool stop_was_asked() {
  return stops_wanted != 0;
}

bool wait_unless_stopped(double seconds) {
  const double until = now() + seconds;
  while (!stop_was_asked() && now() < until) ::usleep(static_cast<useconds_t>(kPollSeconds * 1e6));
  return !stop_was_asked();
}

Result<std::vector<std::string>> mpirun_line(const MpirunOptions& options,
                                             const std::vector<std::string>& arguments) {
  const auto left_out = [&](const std::string& host) {
    return std::find(options.left_out.begin(), options.left_out.end(), host) !=
           options.left_out.end();
  };
  if (!options.cluster.empty()) {
    QT_ASSIGN(Cluster cluster, find_cluster(options.cluster));
    std::erase_if(cluster.nodes, [&](const ClusterNode& node) { return left_out(node.address); });
    cluster.spec.nodes = static_cast<int>(cluster.nodes.size());
    return cluster_mpirun_line(cluster, {options.ranks, options.ranks_per_node, options.threads},
                               arguments);
  }
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
    return io_error("cannot find out the path of this program: {}", std::strerror(errno));
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : std::max(1, cores / options.ranks);
  const bool oversubscribed = options.hosts.empty() && options.ranks * threads > cores;
  std::vector<std::string> line;
  // Some machines keep mpirun from other hosts by default; asked for hosts, it is to go there.
  const char* launcher = std::getenv("OMPI_MCA_plm");
  if (!options.hosts.empty() && launcher != nullptr && std::string(launcher) == "isolated") {
    line = {"env", "-u", "OMPI_MCA_plm"};
  }
  line.insert(line.end(), {"mpirun", "--quiet", "-n", std::to_string(options.ranks)});
  const auto add = [&](const std::vector<std::string>& words) {
    line.insert(line.end(), words.begin(), words.end());
  };
  if (::geteuid() == 0) add({"--allow-run-as-root"});
  if (!options.hosts.empty()) {
    QT_ASSIGN(std::vector<HostSlots> hosts, parse_hosts(options.hosts));
    std::erase_if(hosts, [&](const HostSlots& host) { return left_out(host.name); });
    std::int64_t slots = 0;
    for (const HostSlots& host : hosts) slots += host.slots;
    if (options.ranks > slots) {  // mpirun would end without a word
      return usage_error(
          "{} ranks, and --hosts has {} slot{}: {}; name more hosts, or more ranks of each, such "
          "as node1:8",
          options.ranks, slots, slots == 1 ? "" : "s", hosts_text(hosts));
    }
    add({"--host", hosts_text(hosts)});
    add(attached_daemons());
  }
  if (oversubscribed) {
    // Ranks that wait must let others run; binding would pile them up on the same cores.
    add({"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-x",
         "OMP_WAIT_POLICY=passive"});
  } else {
    add({"--map-by", fmt::format("slot:PE={}", threads), "--bind-to", "core"});
  }
  add({"-x", fmt::format("OMP_NUM_THREADS={}", threads), self});
  line.insert(line.end(), arguments.begin(), arguments.end());
  return line;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  for (const std::string& word : words) shown.push_back(quoted(word));
  return join(shown, " ");
}

namespace {

pid_t start(const std::vector<std::string>& line, const std::string& log,
            const OutcomeFile& outcome) {
  std::vector<char*> argv;
  for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child != 0) return child;
  // A group of its own: a terminal's Ctrl-C is for us, who know what to make of it. Reading the
  // terminal would stop it there.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1, SIGUSR2})
    std::signal(signal, SIG_DFL);  // whoever started us may have them ignored
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (!log.empty()) {
    const int file = ::open(log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
  }
  ::setenv(kOutcomeVariable, outcome.path().c_str(), 1);
  ::execvp(argv[0], argv.data());
  fmt::print(stderr, "quintet: cannot start {}: {} (Debian: openmpi-bin)\n", line[0],
             std::strerror(errno));
  ::_exit(127);
}

// Waits for mpirun, and passes signals on.
int wait_for(pid_t child, const OutcomeFile& outcome) {
  int stops = 0, saves = 0, asked_to_end = 0;
  double outcome_since = 0, first_stop = 0;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (stops_wanted != stops) {
      stops = stops_wanted;
      if (first_stop == 0) {
        first_stop = now();
        ::kill(child, SIGUSR2);  // mpirun passes it on to all ranks
      } else if (now() > first_stop + 1) {
        ::kill(child, SIGTERM);
      }
    }
    if (saves_wanted != saves) {
      saves = saves_wanted;
      ::kill(child, SIGUSR1);
    }
    if (outcome_since == 0 && outcome.read()) outcome_since = now();
    if (outcome_since > 0 && now() - outcome_since > kPatience * (asked_to_end + 1))
      ::kill(child, asked_to_end++ == 0 ? SIGTERM : SIGKILL);
    ::usleep(static_cast<useconds_t>(kPollSeconds * 1e6));
  }
}

}  // namespace

CommandEnd run_to_end(const std::vector<std::string>& line, const std::string& log) {
  const OutcomeFile outcome;
  const LaunchSignals signals;
  const pid_t child = start(line, log, outcome);
  if (child < 0) return {io_error("cannot start {}: {}", line[0], std::strerror(errno)), false};
  const int code = wait_for(child, outcome);
  if (code == 0) return {};
  // Ranks whose launcher was killed, or that wait on a node which is cut off.
  end_processes_with(kOutcomeVariable, outcome.path());
  // The ranks know the first cause; what mpirun's code says depends on which of them it saw first.
  if (auto said = outcome.read()) return {std::move(said), log.empty()};
  if (code == 127) return {io_error("{} could not be started", line[0]), false};
  if (stops_wanted != 0) {
    return {make_error(ErrorCode::kInterrupted, "interrupted, without saving"), false};
  }
  // mpirun passes on the first rank's code, or 128 + the signal that killed it; what is beyond all
  // signals is its own, for what it could not start.
  constexpr int kLastSignal = 64;
  if (code > 128 + kLastSignal)
    return {make_error(ErrorCode::kInternal, "mpirun ended with exit code {}", code), false};
  if (code > 128 && code != static_cast<int>(ErrorCode::kInterrupted)) {
    return {make_error(ErrorCode::kPeerLost, "a rank was killed by signal {} ({})", code - 128,
                       ::strsignal(code - 128)),
            false};
  }
  return {make_error(static_cast<ErrorCode>(code), "the run ended with exit code {}", code), false};
}

Status run_command(const std::vector<std::string>& line, const std::string& log) {
  const CommandEnd end = run_to_end(line, log);
  return end.error ? Status(*end.error) : Status();
}

}  // namespace quintet
