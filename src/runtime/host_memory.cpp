#include "runtime/host_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace quintet {
namespace {

// The number in a file; nothing where there is no such file, or it says "max".
std::optional<std::int64_t> number_in_file(const Path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number) || number < 0) return std::nullopt;
  return number;
}

// "key number" lines, as in /proc/meminfo and memory.stat.
std::int64_t value_in(const Path& path, const std::string& wanted, std::int64_t fallback) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t number = 0;
    if (words >> key >> number && key == wanted) return number;
  }
  return fallback;
}

struct Files {
  const char *limit, *usage, *cached;
};
constexpr Files kVersion2 = {"memory.max", "memory.current", "inactive_file"};
constexpr Files kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file"};
// Version 1 writes a number near 2^63 for none.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

// The group and all that hold it. In a container the path may be the host's, of which only the end,
// or nothing, is to be seen: what is not there is passed over.
void tighten(const Path& mount, const std::string& group, const Files& files, HostMemory& memory) {
  Path inside = Path(group).relative_path().lexically_normal();
  for (;;) {
    const Path folder = (mount / inside).lexically_normal();
    const auto limit = number_in_file(folder / files.limit);
    if (limit && *limit < kNoLimit) {
      // What is only cached is given back when somebody needs it.
      const std::int64_t used = number_in_file(folder / files.usage).value_or(0) -
                                value_in(folder / "memory.stat", files.cached, 0);
      const std::int64_t free = std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used));
      if (memory.cgroup_free < 0 || free < memory.cgroup_free) {
        memory.cgroup_free = free;
        memory.cgroup_limit = *limit;
        memory.cgroup = (folder / files.limit).string();
      }
    }
    if (inside.empty() || inside == ".") return;
    inside = inside.parent_path();
  }
}

}  // namespace

std::int64_t HostMemory::free() const {
  if (machine_free < 0 || cgroup_free < 0) return std::max(machine_free, cgroup_free);
  return std::min(machine_free, cgroup_free);
}

HostMemory host_memory(const Path& root) {
  HostMemory memory;
  if (const std::int64_t kib = value_in(root / "proc/meminfo", "MemAvailable:", -1); kib >= 0)
    memory.machine_free = kib * 1024;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" is version 2's, "4:memory:/path" version 1's.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") tighten(root / "sys/fs/cgroup", group, kVersion2, memory);
    if (controllers.find(",memory,") != std::string::npos)
      tighten(root / "sys/fs/cgroup/memory", group, kVersion1, memory);
  }
  return memory;
}

}  // namespace quintet
