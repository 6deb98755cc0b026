#include "train/host_fit.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "base/text.h"
#include "parallel/hosts.h"

namespace quintet {
namespace {

// "0-3, 8": ranks in order, runs of them joined.
std::string ranks_text(const std::vector<std::size_t>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    parts.push_back(last == i ? std::to_string(ranks[i])
                              : fmt::format("{}-{}", ranks[i], ranks[last]));
    i = last + 1;
  }
  return join(parts, ", ");
}

std::string bytes_text(std::int64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

// Of those that share one limit; `free` and `what` say which.
std::string shortage_of(const std::vector<HostNeed>& needs, const std::vector<std::size_t>& ranks,
                        std::int64_t HostMemory::*which, const std::string& what) {
  std::int64_t step = 0, saving = 0, free = INT64_MAX;
  for (const std::size_t rank : ranks) {
    step += needs[rank].step;
    saving += needs[rank].saving;
    free = std::min(free, needs[rank].memory.*which);
  }
  if (free < 0 || step + saving <= free) return "";
  return fmt::format(
      "host {}: rank{} {} together plan {} of host memory ({} for the step, {} for checkpoints), "
      "and {} {} free{}. Put fewer ranks on it, spread the state over more (parallel.zero), {}or "
      "see what needs less with `quintet plan`",
      needs[ranks.front()].host, ranks.size() == 1 ? "" : "s", ranks_text(ranks),
      bytes_text(step + saving), bytes_text(step), bytes_text(saving), bytes_text(free),
      free == 1 ? "is" : "are", what,
      step <= free && saving > 0 ? "set output.background=false (no copy for checkpoints), " : "");
}

}  // namespace

std::string host_shortage(const std::vector<HostNeed>& needs) {
  std::map<std::string, std::vector<std::size_t>> by_machine, by_cgroup;
  for (std::size_t rank = 0; rank < needs.size(); ++rank) {
    const HostNeed& need = needs[rank];
    by_machine[need.machine].push_back(rank);
    // Nodes that are containers may have cgroups of the same name: theirs is the host's, too.
    if (need.memory.cgroup_free >= 0)
      by_cgroup[need.machine + " " + need.host + " " + need.memory.cgroup].push_back(rank);
  }
  for (const auto& [machine, ranks] : by_machine) {
    if (const auto found = shortage_of(needs, ranks, &HostMemory::machine_free, ""); !found.empty())
      return found;
  }
  for (const auto& [group, ranks] : by_cgroup) {
    const HostMemory& memory = needs[ranks.front()].memory;
    const std::string limit =
        fmt::format(" under {} = {}", memory.cgroup, bytes_text(memory.cgroup_limit));
    if (const auto found = shortage_of(needs, ranks, &HostMemory::cgroup_free, limit);
        !found.empty())
      return found;
  }
  return "";
}

Status fits_on_hosts(std::int64_t step, std::int64_t saving, World& world) {
  if (world.size() == 1) return {};  // the executor looks by itself
  const Host host = this_host();
  const HostMemory memory = host_memory();
  const auto all = world.gather(fmt::format(
      "{} {} {} {} {} {} {} {}", host.name, host.machine, memory.machine_free, memory.cgroup_free,
      memory.cgroup_limit, step, saving, memory.cgroup.empty() ? "-" : memory.cgroup));
  std::string shortage;
  if (world.rank() == 0) {
    std::vector<HostNeed> needs;
    bool alone = false;  // too much for one rank alone: it says so itself, and what would fit
    for (const std::string& line : all) {
      std::istringstream words(line);
      HostNeed need;
      words >> need.host >> need.machine >> need.memory.machine_free >> need.memory.cgroup_free >>
          need.memory.cgroup_limit >> need.step >> need.saving >> need.memory.cgroup;
      const std::int64_t free = need.memory.free();
      alone = alone || (free >= 0 && need.step > free);
      needs.push_back(std::move(need));
    }
    if (!alone) shortage = host_shortage(needs);
  }
  shortage = world.broadcast(shortage);
  if (shortage.empty()) return {};
  return make_error(ErrorCode::kOutOfMemory, "{}", shortage);
}

}  // namespace quintet
