// Where the ranks of a run are: which share a machine, and by which addresses a machine can be
// reached. Learned from the system and exchanged over MPI; names are never looked up, since on many
// clusters they cannot be.
#pragma once

#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace quintet {

struct Host {
  std::string name;     // as it calls itself, for people
  std::string machine;  // the same for processes that share one kernel, and so its memory
  std::string network;  // the same for processes that reach each other by the loopback address

  // In a container the machine may be shared by several networks.
  bool reaches_locally(const Host& other) const {
    return machine == other.machine && network == other.network;
  }
  friend bool operator==(const Host&, const Host&) = default;
};

Host this_host();
// The hosts of all ranks, on every rank. Called by all ranks together.
std::vector<Host> hosts_of(World& world);

// The numeric addresses at which this host can be reached from others: those of its interfaces that
// are up, but for loopback and link-local ones.
std::vector<std::string> host_addresses();

}  // namespace quintet
