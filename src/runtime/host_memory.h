// How much memory this process may still take: what the machine has free, and what the cgroups that
// hold the process (a batch job's, a container's, a service's) allow it.
#pragma once

#include <cstdint>
#include <string>

#include "base/files.h"

namespace quintet {

struct HostMemory {
  std::int64_t machine_free = -1;  // without swapping; -1: the system does not say
  // The tightest limit of the process's cgroup and its ancestors, versions 1 and 2; -1: none.
  std::int64_t cgroup_limit = -1, cgroup_free = -1;
  std::string cgroup;  // the file that says so

  // The lesser of the two; -1 where neither is known.
  std::int64_t free() const;
};

// `root`: the folder in which proc/ and sys/ are; others than "/" are for tests.
HostMemory host_memory(const Path& root = "/");

}  // namespace quintet
