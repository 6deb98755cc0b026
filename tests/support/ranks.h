// Long runs on several ranks, and what can be done to them while they are under way.
#pragma once

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "base/files.h"
#include "tests/support/command.h"
#include "tests/support/temporary_folder.h"

namespace quintet::testing {

inline const std::string kSmallRun =
    " train --model tiny --source 32 --set schedule.kind=constant --set schedule.warmup_steps=2 "
    "--set output.log_every=1000 --set parallel.whole_below=0 ";

// Also of a file whose size the system does not tell.
inline std::string text_of(const Path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::size_t steps_done(const Path& folder) {
  const std::string text = text_of(folder / "metrics.jsonl");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The processes of a run that carry this mark in their arguments, by rank.
inline std::map<int, pid_t> ranks_of(const std::string& mark) {
  std::map<int, pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string arguments = text_of(entry.path() / "cmdline");
    const std::string environment = text_of(entry.path() / "environ");
    const std::string key = "OMPI_COMM_WORLD_RANK=";
    const std::size_t at = environment.find(key);
    if (!contains(arguments, mark) || at == std::string::npos) continue;
    found[std::atoi(environment.c_str() + at + key.size())] = std::atoi(name.c_str());
  }
  return found;
}

struct Disturbed {
  Outcome outcome;
  std::size_t steps = 0;  // that it had done
};

// Starts a run that would take very long, with `folder` as its output; when it has done a few
// steps, does something to its processes, and waits for its end.
inline Disturbed disturb(const Path& folder, const std::string& command, std::size_t ranks,
                         const std::function<void(const std::map<int, pid_t>&)>& act) {
  Disturbed result;
  std::thread run([&] { result.outcome = run_shell(command); });
  const auto start = std::chrono::steady_clock::now();
  while (steps_done(folder) < 5 &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(60)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const auto processes = ranks_of(folder.string());
  EXPECT_EQ(processes.size(), ranks);
  act(processes);
  run.join();
  EXPECT_TRUE(ranks_of(folder.string()).empty()) << "ranks were left behind";
  result.steps = steps_done(folder);
  return result;
}

// Stops a process's main thread and no other. False where the system does not allow it. From then
// on only the calling thread can let it go; it does so by ending.
inline bool freeze_main_thread(pid_t process) {
  if (::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) != 0) return false;
  return ::ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr) == 0;
}

}  // namespace quintet::testing
