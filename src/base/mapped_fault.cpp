#include "base/mapped_fault.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>

#include <sys/mman.h>
#include <unistd.h>

namespace quintet {
namespace {

// Read by a signal handler: no locks, no memory but this.
struct WatchedMap {
  std::atomic<std::uintptr_t> begin{0};  // 0: free
  std::atomic<std::uintptr_t> end{0};
  std::array<char, 512> path{};
};
constexpr std::size_t kMaps = 4096;
std::array<WatchedMap, kMaps> maps;
std::array<char, 512> damaged_path{};
std::atomic<std::uintptr_t> damaged_at{0};
std::atomic<bool> damaged{false};
std::mutex table_mutex;
std::uintptr_t page_size = 4096;

void handle_fault(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (WatchedMap& map : maps) {
    const std::uintptr_t begin = map.begin.load(std::memory_order_acquire);
    if (begin == 0 || at < begin || at >= map.end.load(std::memory_order_acquire)) continue;
    void* page = reinterpret_cast<void*>(at / page_size * page_size);
    if (::mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      break;
    if (!damaged.exchange(true)) {
      damaged_path = map.path;
      damaged_at = at - begin;
    }
    return;
  }
  ::signal(signal, SIG_DFL);  // not ours: it comes again, and ends the process
}

}  // namespace

void watch_map(const std::byte* data, std::size_t size, const Path& path) {
  static std::once_flag once;
  std::call_once(once, [] {
    page_size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = handle_fault;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
  });
  const std::lock_guard lock(table_mutex);
  for (WatchedMap& map : maps) {
    if (map.begin != 0) continue;
    const std::string name = path.string();
    map.path.fill('\0');
    std::memcpy(map.path.data(), name.data(), std::min(name.size(), map.path.size() - 1));
    map.end = reinterpret_cast<std::uintptr_t>(data) + size;
    map.begin.store(reinterpret_cast<std::uintptr_t>(data), std::memory_order_release);
    return;
  }
}

void forget_map(const std::byte* data) {
  const std::lock_guard lock(table_mutex);
  for (WatchedMap& map : maps) {
    if (map.begin == reinterpret_cast<std::uintptr_t>(data)) map.begin = 0;
  }
}

Status mapped_files_are_whole() {
  if (!damaged) return {};
  return bad_input(
      "{}: could not be read near byte {} while in use: the file was truncated, or its disk fails",
      damaged_path.data(), damaged_at.load());
}

}  // namespace quintet
