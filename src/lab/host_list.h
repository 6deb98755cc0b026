// The hosts that ranks are started on, as mpirun names them, and which of them still answer.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

struct HostSlots {
  std::string name;
  int slots = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// mpirun's list: "node1:8,node2:8"; without a number, one slot. A host named twice has the sum.
Result<std::vector<HostSlots>> parse_hosts(const std::string& text);
// mpirun's host file: a line "node1 slots=8" for each host, # begins a comment.
Result<std::vector<HostSlots>> read_hostfile(const std::string& path);
std::string hosts_text(const std::vector<HostSlots>& hosts);

// For command lines of mpirun that go to other hosts: its daemons there stay attached to the agents
// that started them. One that cannot reach mpirun (a firewall, a cable) then ends it, in words;
// detached, mpirun would wait for it for ever.
std::vector<std::string> attached_daemons();

// Those on which a command can be started: this machine, and whoever lets mpirun's agent in
// (OMPI_MCA_plm_rsh_agent, else ssh). All are asked at the same time; takes `timeout` seconds at
// most.
std::vector<HostSlots> answering_hosts(const std::vector<HostSlots>& hosts, double timeout = 10);

}  // namespace quintet
