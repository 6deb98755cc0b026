#include "lab/mpirun.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "lab/cluster.h"

namespace quintet {
namespace {

std::string quoted(const std::string& word) {
  if (word.find_first_of(" \t\"'\\$&|;<>()*?[]{}#~") == std::string::npos && !word.empty())
    return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

pid_t child = 0;
volatile std::sig_atomic_t told_to_stop = 0;

}  // namespace

Result<std::vector<std::string>> mpirun_line(const MpirunOptions& options,
                                             const std::vector<std::string>& arguments) {
  if (!options.cluster.empty()) {
    QT_ASSIGN(const Cluster cluster, find_cluster(options.cluster));
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
  add({"-x", fmt::format("OMP_NUM_THREADS={}", threads), self});
  line.insert(line.end(), arguments.begin(), arguments.end());
  return line;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  for (const std::string& word : words) shown.push_back(quoted(word));
  return join(shown, " ");
}

Status run_command(const std::vector<std::string>& line, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  child = ::fork();
  if (child < 0) return io_error("cannot start {}: {}", line[0], std::strerror(errno));
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);  // whoever started us may have them ignored
    std::signal(SIGTERM, SIG_DFL);
    if (!log.empty()) {
      const int file = ::open(log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
    }
    ::execvp(argv[0], argv.data());
    fmt::print(stderr, "quintet: cannot start {}: {} (Debian: openmpi-bin)\n", line[0],
               std::strerror(errno));
    ::_exit(127);
  }
  // What ends us ends the run; a terminal's Ctrl-C reaches it by itself.
  told_to_stop = 0;
  const auto on_int = std::signal(SIGINT, [](int) { told_to_stop = 1; });
  const auto on_term = std::signal(SIGTERM, [](int signal) {
    told_to_stop = 1;
    ::kill(child, signal);
  });
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, on_int);
  std::signal(SIGTERM, on_term);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 0) return {};
  // Whatever code mpirun then makes of it.
  if (told_to_stop != 0 || code == 130) return make_error(ErrorCode::kInterrupted, "interrupted");
  if (code == 127) return make_error(ErrorCode::kIo, "{} could not be started", line[0]);
  // mpirun passes on the first rank's code, or 128 + the signal that killed it.
  if (code > 128) {
    return make_error(ErrorCode::kPeerLost, "a rank was killed by signal {} ({})", code - 128,
                      ::strsignal(code - 128));
  }
  return make_error(static_cast<ErrorCode>(code), "the run ended with exit code {}", code);
}

}  // namespace quintet
