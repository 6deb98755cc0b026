#include "lab/tool.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "parallel/outcome.h"

namespace quintet {
namespace {

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

// Reads two pipes until both are closed; false if the time is up, or we are interrupted, before.
bool drain(int first, std::string& first_text, int second, std::string& second_text, double timeout,
           const std::atomic<bool>* interrupted) {
  const double began = now();
  pollfd polls[2] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
  std::string* texts[2] = {&first_text, &second_text};
  int open = 2;
  while (open > 0) {
    if (timeout > 0 && now() - began > timeout) return false;
    if (interrupted != nullptr && *interrupted) return false;
    if (::poll(polls, 2, timeout > 0 || interrupted != nullptr ? 200 : -1) < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    for (int i = 0; i < 2; ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      char chunk[65536];
      const ssize_t got = ::read(polls[i].fd, chunk, sizeof chunk);
      if (got > 0) {
        texts[i]->append(chunk, static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        polls[i].fd = -1;
        --open;
      }
    }
  }
  return true;
}

// Whether a process still has a thread that is not a zombie: the last of them closes its files.
bool holds_files(pid_t process) {
  std::error_code none;
  for (const auto& thread :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), none)) {
    std::ifstream file(thread.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    const std::size_t name_ends = line.rfind(')');  // "12 (its name) R ..."
    const bool has_state = name_ends != std::string::npos && name_ends + 2 < line.size();
    if (has_state && line[name_ends + 2] != 'Z' && line[name_ends + 2] != 'X') return true;
  }
  return false;
}

constexpr const char* kMark = "QUINTET_RUN_MARK";

std::vector<char*> argv_of(const std::vector<std::string>& line) {
  std::vector<char*> argv;
  for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

}  // namespace

Result<CommandEnded> run_supervised(const std::vector<std::string>& line,
                                    const Supervision& supervision) {
  const std::vector<char*> argv = argv_of(line);
  const int log = ::open(supervision.log.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) return io_error("{}: {}", supervision.log, std::strerror(errno));
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);  // before it can come: our own handler would swallow it
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(143);  // already gone
    if (!supervision.mark.empty()) ::setenv(kMark, supervision.mark.c_str(), 1);
    if (!supervision.outcome.empty()) ::setenv(kOutcomeVariable, supervision.outcome.c_str(), 1);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::dprintf(STDERR_FILENO, "quintet: cannot start %s: %s\n", argv[0], std::strerror(errno));
    ::_exit(127);
  }
  ::close(log);
  if (child < 0) return io_error("cannot start {}: {}", line[0], std::strerror(errno));
  ::setpgid(child, child);  // whoever comes first
  CommandEnded ended;
  const double began = now();
  double told = 0;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    ended.interrupted = ended.interrupted ||
                        (supervision.interrupted != nullptr && supervision.interrupted->load());
    ended.timed_out =
        ended.timed_out || (supervision.timeout > 0 && now() - began > supervision.timeout);
    if ((ended.interrupted || ended.timed_out) && told == 0) {
      ::kill(child, SIGTERM);  // mpirun ends its ranks
      told = now();
    } else if (told > 0 && now() - told > 5) {
      ::kill(-child, SIGKILL);
    }
    ::usleep(2000);
  }
  if (ended.interrupted || ended.timed_out) ::kill(-child, SIGKILL);  // whoever is left
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

void end_marked(const std::string& mark) {
  end_processes_with(kMark, mark);
}

void end_processes_with(const std::string& name_of_it, const std::string& value) {
  const std::string wanted = fmt::format("{}={}", name_of_it, value);
  std::vector<pid_t> killed;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    for (std::string variable; std::getline(file, variable, '\0');) {
      if (variable != wanted) continue;
      killed.push_back(std::stoi(name));
      ::kill(killed.back(), SIGKILL);
    }
  }
  // A killed process keeps its files and their locks until it has been on a core once more, which
  // takes a while on a busy machine. Who is stuck in the kernel for longer is not waited for.
  constexpr double kLongest = 10;
  const double began = now();
  for (const pid_t process : killed) {
    while (holds_files(process) && now() - began < kLongest) ::usleep(1000);
  }
}

Result<std::string> output_of(const std::vector<std::string>& line, double timeout,
                              const std::atomic<bool>* interrupted) {
  const std::vector<char*> argv = argv_of(line);
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) return io_error("no pipe: {}", std::strerror(errno));
  if (::pipe2(err, O_CLOEXEC) != 0) {
    ::close(out[0]);
    ::close(out[1]);
    return io_error("no pipe: {}", std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);                     // a terminal's Ctrl-C does not end it halfway
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing outlives whoever asked
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::dprintf(STDERR_FILENO, "%s\n", std::strerror(errno));
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  std::string printed, complaints;
  const bool in_time =
      child < 0 || drain(out[0], printed, err[0], complaints, timeout, interrupted);
  if (!in_time) ::kill(child, SIGKILL);
  ::close(out[0]);
  ::close(err[0]);
  if (child < 0) return io_error("cannot start {}: {}", line[0], std::strerror(errno));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time && interrupted != nullptr && *interrupted)
    return make_error(ErrorCode::kInterrupted, "interrupted");
  if (!in_time) return io_error("{} was not done after {:.0f} s", line[0], timeout);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return printed;
  const auto self = own_path();
  if (WIFEXITED(status) && self.ok() && line[0] == self.value()) {
    std::string why = last_line(complaints);
    if (why.rfind("quintet: ", 0) == 0) why = why.substr(9);
    return make_error(static_cast<ErrorCode>(WEXITSTATUS(status)), "{}", why);
  }
  std::string shown;
  for (const std::string& word : line) shown += (shown.empty() ? "" : " ") + word;
  return io_error("`{}` failed: {}", shown,
                  WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : last_line(complaints));
}

Result<std::string> own_path() {
  char self[4096] = {};
  if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
    return io_error("cannot find out the path of this program: {}", std::strerror(errno));
  }
  return std::string(self);
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folders = std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = folders.substr(begin, end - begin) + "/" + name;
    if (end > begin && ::access(candidate.c_str(), X_OK) == 0 &&
        !std::filesystem::is_directory(candidate)) {
      return candidate;
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace quintet
