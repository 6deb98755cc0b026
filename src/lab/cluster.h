// A cluster on one Linux machine: each node a network namespace with a host name and cores of its
// own, all joined by a bridge over links of a given bandwidth. Needs root and iproute2.
//
// Everything is made inside namespaces named qt-NAME-..., the bridge and its ends of the links in
// one of their own: no interface, route or file of the machine itself is touched, nothing leads
// out, and removing the namespaces removes it all, whoever made them and however that ended. A
// state file in /run/quintet says what a cluster is; removal works without it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace quintet {

// Bits per second from "1gbit", "2.5gbit", "500mbit", "64kbit"; at least 1 mbit.
Result<double> parse_bandwidth(const std::string& text);
// As parse_bandwidth() reads it.
std::string bandwidth_text(double bits_per_second);

struct ClusterSpec {
  std::string name = "lab";  // up to 16 lower-case letters and digits
  int nodes = 2;
  int ranks_per_node = 1;
  double bandwidth = 1e9;  // bits per second, each way, of each node's link; 0: not shaped
};

struct ClusterNode {
  std::string space;    // its network namespace
  std::string host;     // its host name
  std::string address;  // on the bridge
  std::vector<int> cpus;
};

struct Cluster {
  ClusterSpec spec;
  std::string subnet;        // "10.213.7.0/24"
  bool shares_cpus = false;  // fewer cores than nodes: all nodes on all cores
  std::vector<ClusterNode> nodes;
};

// Whether this machine and user can have one; else what is missing.
Status cluster_possible();

// Makes a cluster; on failure nothing is left of it.
Result<Cluster> cluster_up(const ClusterSpec& spec);
// Gives all links another bandwidth.
Status shape_links(Cluster& cluster, double bandwidth);
// Ends every process on the cluster's nodes and removes it. What was there: namespaces by name;
// none is no error.
Result<std::vector<std::string>> cluster_down(const std::string& name);
// A cluster that is up.
Result<Cluster> find_cluster(const std::string& name);
// The names of all that is up, or left over.
std::vector<std::string> cluster_names();
// Processes on a node.
std::vector<int> processes_on(const ClusterNode& node);

// Ends them.
void end_processes(const ClusterNode& node);

// Moves this process onto a node: network, host name, cores. For what is exec'd next.
Status enter_node(const Cluster& cluster, int node);

// What a link carries: bits per second received on one node, sent by another, for about `seconds`.
Result<double> measure_link(const Cluster& cluster, int from, int to, double seconds = 0.5);

// Whether one node can be reached from another within two seconds.
bool node_answers(const Cluster& cluster, int from, int to);

struct LinkCheck {
  double asked = 0, measured = 0;  // bits per second
};
constexpr double kLinkTolerance = 0.05;
// Shapes the links to each bandwidth in turn and measures; an error where one is not kept.
Result<std::vector<LinkCheck>> check_links(Cluster& cluster, const std::vector<double>& bandwidths);

struct ClusterRun {
  int ranks = 0;           // 0: all there are
  int ranks_per_node = 0;  // 0: the cluster's
  int threads = 0;         // of each rank; 0: its node's cores, divided
};
// The mpirun line for `arguments` of this program on a cluster's first nodes.
Result<std::vector<std::string>> cluster_mpirun_line(const Cluster& cluster, const ClusterRun& run,
                                                     const std::vector<std::string>& arguments);

}  // namespace quintet
