#include "lab/cluster.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "lab/host_list.h"
#include "lab/tool.h"

namespace quintet {
namespace {

constexpr const char* kSpaces = "/var/run/netns";
constexpr const char* kStates = "/run/quintet";
// Large frames, so that headers take less than one per cent of what a link carries.
constexpr int kMtu = 9000;
constexpr int kMostNodes = 250;

std::string prefix_of(const std::string& name) {
  return "qt-" + name + "-";
}
std::string switch_of(const std::string& name) {
  return prefix_of(name) + "sw";
}
std::string state_file(const std::string& name) {
  return fmt::format("{}/{}.json", kStates, name);
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 16 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
}
Status check_name(const std::string& name) {
  if (is_name(name)) return {};
  return usage_error("a cluster's name is 1 to 16 lower-case letters and digits, not \"{}\"", name);
}

// The cluster's name if a namespace is one of ours, else nothing.
std::string cluster_of(const std::string& space) {
  if (space.rfind("qt-", 0) != 0) return "";
  const std::size_t dash = space.find('-', 3);
  if (dash == std::string::npos) return "";
  const std::string name = space.substr(3, dash - 3), part = space.substr(dash + 1);
  const bool node = part.size() >= 2 && part.size() <= 4 && part[0] == 'n' &&
                    std::all_of(part.begin() + 1, part.end(),
                                [](unsigned char c) { return std::isdigit(c) != 0; });
  return is_name(name) && (part == "sw" || node) ? name : "";
}

std::vector<std::string> spaces_of(const std::string& name) {
  std::vector<std::string> spaces;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(kSpaces, none)) {
    const std::string space = entry.path().filename().string();
    if (cluster_of(space) == name) spaces.push_back(space);
  }
  std::sort(spaces.begin(), spaces.end());
  return spaces;
}

Status ip(std::vector<std::string> words) {
  words.insert(words.begin(), find_program("ip"));
  if (const auto done = output_of(words); !done.ok()) return done.error();
  return {};
}

std::vector<int> processes_in(const std::string& space) {
  std::vector<int> found;
  struct stat wanted {};
  if (::stat((std::string(kSpaces) + "/" + space).c_str(), &wanted) != 0) return found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    struct stat space_of_it {};
    if (::stat(("/proc/" + name + "/ns/net").c_str(), &space_of_it) == 0 &&
        space_of_it.st_ino == wanted.st_ino && space_of_it.st_dev == wanted.st_dev) {
      found.push_back(pid);
    }
  }
  return found;
}

void end_processes_in(const std::string& space) {
  const double began = now();
  while (now() - began < 10) {
    std::vector<int> there = processes_in(space);
    std::erase(there, ::getpid());
    if (there.empty()) return;
    for (const int pid : there) ::kill(pid, SIGKILL);
    ::usleep(5000);
  }
}

// A bucket of a quarter of a millisecond, but of two frames at least, and at high rates less: what
// it holds passes at once after a pause, so it must be little beside the messages that are measured
// (tensor-parallel ones are some 100 KB), but a timer that comes late must not cost bandwidth, nor
// the cutting of large packets.
std::vector<std::string> tbf_words(double bandwidth) {
  const double rate = bandwidth / 8;
  const double bytes = std::clamp(rate * 0.25e-3, 2.0 * kMtu, std::max(76000.0, rate * 0.1e-3));
  // Deep enough that nothing is dropped: windows are limited (limit_windows), and a real network
  // of this kind is lossless.
  return {"root",  "tbf",
          "rate",  fmt::format("{:.0f}bit", bandwidth),
          "burst", fmt::format("{:.0f}", bytes),
          "limit", "67108864"};
}

Status shape_one(const std::string& space, const std::string& device, double bandwidth) {
  std::vector<std::string> line = {find_program("tc"), "-n",  space, "qdisc",
                                   "replace",          "dev", device};
  if (bandwidth > 0) {
    const auto words = tbf_words(bandwidth);
    line.insert(line.end(), words.begin(), words.end());
  } else {
    line.insert(line.end(), {"root", "pfifo", "limit", "10000"});
  }
  if (const auto done = output_of(line); !done.ok()) return done.error();
  return {};
}

Status write_state(const Cluster& cluster) {
  Json json = {
      {"name", cluster.spec.name},           {"ranks_per_node", cluster.spec.ranks_per_node},
      {"bandwidth", cluster.spec.bandwidth}, {"subnet", cluster.subnet},
      {"shares_cpus", cluster.shares_cpus},  {"nodes", Json::array()}};
  for (const ClusterNode& node : cluster.nodes) {
    json["nodes"].push_back({{"space", node.space},
                             {"host", node.host},
                             {"address", node.address},
                             {"cpus", node.cpus}});
  }
  QT_TRY(make_directories(kStates));
  return write_file(state_file(cluster.spec.name), to_text(json, 1) + "\n");
}

std::uint32_t address_of(int a, int b, int c, int d) {
  return static_cast<std::uint32_t>(a) << 24 | static_cast<std::uint32_t>(b) << 16 |
         static_cast<std::uint32_t>(c) << 8 | static_cast<std::uint32_t>(d);
}

struct Block {
  std::uint32_t address = 0;
  int bits = 32;
};

// "10.0.0.0/8", "10.1.2.3"; nothing for other texts.
std::vector<Block> block_from(const std::string& text) {
  int a = 0, b = 0, c = 0, d = 0, bits = 32;
  if (std::sscanf(text.c_str(), "%d.%d.%d.%d/%d", &a, &b, &c, &d, &bits) < 4) return {};
  return {{address_of(a, b, c, d), bits}};
}

bool overlap(const Block& a, const Block& b) {
  const int bits = std::min(a.bits, b.bits);
  return bits <= 0 || (a.address >> (32 - bits)) == (b.address >> (32 - bits));
}

// What the machine's own addresses and routes take, and clusters that are up.
Result<std::vector<Block>> taken_blocks() {
  std::vector<Block> taken;
  const std::string tool = find_program("ip");
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{tool, "-j", "-4", "route", "show", "table", "all"},
        std::vector<std::string>{tool, "-j", "-4", "addr"}}) {
    QT_ASSIGN(const std::string text, output_of(line));
    QT_ASSIGN(const Json rows, parse_json(text, "ip -j"));
    for (const Json& row : rows) {
      if (!row.is_object()) continue;
      for (const Block& block : block_from(row.value("dst", ""))) taken.push_back(block);
      for (const Json& address : row.value("addr_info", Json::array())) {
        for (Block block : block_from(address.value("local", ""))) {
          block.bits = address.value("prefixlen", 32);
          taken.push_back(block);
        }
      }
    }
  }
  for (const std::string& name : cluster_names()) {
    const auto other = find_cluster(name);
    if (!other.ok()) continue;
    for (const Block& block : block_from(other.value().subnet)) taken.push_back(block);
  }
  return taken;
}

// Three numbers of a private /24 that nothing overlaps.
Result<std::string> free_network() {
  QT_ASSIGN(const std::vector<Block> taken, taken_blocks());
  for (int second = 213; second < 256; ++second) {
    for (int third = 0; third < 256; ++third) {
      const Block wanted{address_of(10, second, third, 0), 24};
      if (std::none_of(taken.begin(), taken.end(),
                       [&](const Block& block) { return overlap(block, wanted); })) {
        return fmt::format("10.{}.{}", second, third);
      }
    }
  }
  return io_error(
      "no network of 256 addresses from 10.213.0.0 on is free: routes or interfaces of this "
      "machine "
      "take them all");
}

std::vector<int> own_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cpus.push_back(i);
  }
  return cpus;
}

Result<Cluster> describe_cluster(const ClusterSpec& spec) {
  Cluster cluster;
  cluster.spec = spec;
  QT_ASSIGN(const std::string network, free_network());
  cluster.subnet = network + ".0/24";
  const std::vector<int> cpus = own_cpus();
  const std::size_t each = cpus.size() / static_cast<std::size_t>(spec.nodes);
  cluster.shares_cpus = each == 0;
  for (int i = 0; i < spec.nodes; ++i) {
    ClusterNode node;
    node.space = fmt::format("{}n{}", prefix_of(spec.name), i);
    node.host = fmt::format("{}-n{}", spec.name, i);
    node.address = fmt::format("{}.{}", network, i + 1);
    const auto first = cpus.begin() + static_cast<std::ptrdiff_t>(each) * i;
    node.cpus =
        each == 0 ? cpus : std::vector<int>(first, first + static_cast<std::ptrdiff_t>(each));
    cluster.nodes.push_back(std::move(node));
  }
  return cluster;
}

// Windows no larger than a link of this kind can use: then queues stay short and nothing is lost.
// These settings belong to the namespace of the thread that writes them. Where the system does not
// let us (some containers), links work without.
void limit_windows(const ClusterNode& node) {
  std::thread([&] {
    const int space =
        ::open((std::string(kSpaces) + "/" + node.space).c_str(), O_RDONLY | O_CLOEXEC);
    if (space >= 0 && ::setns(space, CLONE_NEWNET) == 0) {
      std::ofstream("/proc/sys/net/ipv4/tcp_wmem") << "4096 65536 1048576\n";
      std::ofstream("/proc/sys/net/ipv4/tcp_rmem") << "4096 131072 1048576\n";
    }
    if (space >= 0) ::close(space);
  }).join();
}

Status build(const Cluster& cluster) {
  const std::string hub = switch_of(cluster.spec.name);
  QT_TRY(ip({"netns", "add", hub}));
  QT_TRY(ip({"-n", hub, "link", "add", "name", "bridge0", "type", "bridge"}));
  QT_TRY(ip({"-n", hub, "link", "set", "bridge0", "mtu", std::to_string(kMtu), "up"}));
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const ClusterNode& node = cluster.nodes[i];
    const std::string port = fmt::format("v{}", i), mtu = std::to_string(kMtu);
    QT_TRY(ip({"netns", "add", node.space}));
    QT_TRY(ip({"-n", hub, "link", "add", "name", port, "mtu", mtu, "type", "veth", "peer", "name",
               "eth0", "mtu", mtu, "netns", node.space}));
    QT_TRY(ip({"-n", hub, "link", "set", port, "master", "bridge0", "up"}));
    QT_TRY(ip({"-n", node.space, "addr", "add", node.address + "/24", "dev", "eth0"}));
    QT_TRY(ip({"-n", node.space, "link", "set", "lo", "up"}));
    QT_TRY(ip({"-n", node.space, "link", "set", "eth0", "up"}));
    limit_windows(node);
  }
  return {};
}

}  // namespace

Result<double> parse_bandwidth(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const double scale = unit == "kbit" ? 1e3 : unit == "mbit" ? 1e6 : unit == "gbit" ? 1e9 : 0;
  if (error != std::errc() || scale == 0 || !(number * scale >= 1e6) || number * scale > 1e12) {
    return usage_error(
        "bandwidth \"{}\": expected a number and kbit, mbit or gbit per second, such as 500mbit or "
        "2.5gbit, between 1mbit and 1000gbit",
        text);
  }
  return number * scale;
}

std::string bandwidth_text(double bits_per_second) {
  if (bits_per_second >= 1e9) return fmt::format("{:.6g}gbit", bits_per_second / 1e9);
  if (bits_per_second >= 1e6) return fmt::format("{:.6g}mbit", bits_per_second / 1e6);
  return fmt::format("{:.6g}kbit", bits_per_second / 1e3);
}

Status cluster_possible() {
  if (::geteuid() != 0) {
    return usage_error(
        "an emulated cluster needs root (network namespaces): run this as root, or without a "
        "cluster");
  }
  for (const char* name : {"ip", "tc"}) {
    if (find_program(name).empty()) {
      return io_error("an emulated cluster needs `{}`, which PATH does not have (Debian: iproute2)",
                      name);
    }
  }
  return {};
}

Result<Cluster> cluster_up(const ClusterSpec& spec) {
  QT_TRY(check_name(spec.name));
  if (spec.nodes < 1 || spec.nodes > kMostNodes || spec.ranks_per_node < 1 ||
      spec.ranks_per_node > 1024) {
    return usage_error("{} nodes of {} ranks: expected 1 to {} nodes of 1 to 1024", spec.nodes,
                       spec.ranks_per_node, kMostNodes);
  }
  QT_TRY(cluster_possible());
  if (!spaces_of(spec.name).empty()) {
    return usage_error(
        "cluster {} is up already, or left over; remove it with `quintet cluster "
        "down --name {}`, or choose another --name",
        spec.name, spec.name);
  }
  QT_ASSIGN(Cluster cluster, describe_cluster(spec));
  // The state first: what a crash leaves behind is known.
  QT_TRY(write_state(cluster));
  Status status = build(cluster);
  if (status.ok()) status = shape_links(cluster, spec.bandwidth);
  if (!status.ok()) {
    static_cast<void>(cluster_down(spec.name).ok());
    return make_error(status.error().code, "cluster {} could not be made: {}", spec.name,
                      status.error().message);
  }
  return cluster;
}

Status shape_links(Cluster& cluster, double bandwidth) {
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    // Out of the node, and into it.
    QT_TRY(shape_one(cluster.nodes[i].space, "eth0", bandwidth));
    QT_TRY(shape_one(switch_of(cluster.spec.name), fmt::format("v{}", i), bandwidth));
  }
  cluster.spec.bandwidth = bandwidth;
  return write_state(cluster);
}

Result<std::vector<std::string>> cluster_down(const std::string& name) {
  QT_TRY(check_name(name));
  const std::vector<std::string> spaces = spaces_of(name);
  if (!spaces.empty()) QT_TRY(cluster_possible());
  // 1. Nobody can be in these namespaces but what was started on the nodes.
  for (const std::string& space : spaces) end_processes_in(space);
  // 2. A namespace takes its interfaces along.
  for (const std::string& space : spaces) QT_TRY(ip({"netns", "delete", space}));
  // 3. With the first namespace `ip` mounts their folder on itself, and leaves it so: a system in a
  // folder could then not be removed. One that holds others' is busy and stays.
  std::error_code none;
  if (std::filesystem::is_empty(kSpaces, none)) static_cast<void>(::umount2(kSpaces, 0));
  std::filesystem::remove(state_file(name), none);
  return spaces;
}

Result<Cluster> find_cluster(const std::string& name) {
  QT_TRY(check_name(name));
  const std::string file = state_file(name);
  if (!std::filesystem::exists(file)) {
    const auto names = cluster_names();
    return usage_error("no cluster {} is up{}; make one with `quintet cluster up --name {}`", name,
                       names.empty() ? "" : fmt::format(" (there is {})", fmt::join(names, ", ")),
                       name);
  }
  QT_ASSIGN(const std::string text, read_file(file));
  QT_ASSIGN(const Json json, parse_json(text, file));
  try {
    Cluster cluster;
    cluster.spec.name = name;
    cluster.spec.ranks_per_node = json.at("ranks_per_node");
    cluster.spec.bandwidth = json.at("bandwidth");
    cluster.subnet = json.at("subnet");
    cluster.shares_cpus = json.at("shares_cpus");
    for (const Json& node : json.at("nodes")) {
      cluster.nodes.push_back(
          {node.at("space"), node.at("host"), node.at("address"), node.at("cpus")});
    }
    cluster.spec.nodes = static_cast<int>(cluster.nodes.size());
    return cluster;
  } catch (const Json::exception& error) {
    return bad_input(
        "{}: not the state of a cluster ({}); `quintet cluster down --name {}` removes "
        "it",
        file, error.what(), name);
  }
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(kSpaces, none)) {
    names.push_back(cluster_of(entry.path().filename().string()));
  }
  for (const auto& entry : std::filesystem::directory_iterator(kStates, none)) {
    if (entry.path().extension() == ".json" && is_name(entry.path().stem().string())) {
      names.push_back(entry.path().stem().string());
    }
  }
  std::erase(names, "");
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<int> processes_on(const ClusterNode& node) {
  return processes_in(node.space);
}

void end_processes(const ClusterNode& node) {
  end_processes_in(node.space);
}

Status enter_node(const Cluster& cluster, int index) {
  if (index < 0 || index >= cluster.spec.nodes) {
    return usage_error("cluster {} has nodes 0 to {}, not {}", cluster.spec.name,
                       cluster.spec.nodes - 1, index);
  }
  const ClusterNode& node = cluster.nodes[static_cast<std::size_t>(index)];
  const std::string space = std::string(kSpaces) + "/" + node.space;
  const int file = ::open(space.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return io_error("{}: {}; the cluster is not up any more", space, std::strerror(errno));
  }
  const bool entered = ::setns(file, CLONE_NEWNET) == 0 && ::unshare(CLONE_NEWUTS) == 0 &&
                       ::sethostname(node.host.c_str(), node.host.size()) == 0;
  const int problem = errno;
  ::close(file);
  if (!entered) {
    return io_error("cannot enter node {} of cluster {}: {}", index, cluster.spec.name,
                    std::strerror(problem));
  }
  if (!node.cpus.empty() && !cluster.shares_cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : node.cpus) CPU_SET(cpu, &set);
    ::sched_setaffinity(0, sizeof set, &set);  // cores may have gone; then wherever there are some
  }
  ::unsetenv("OMPI_MCA_plm");  // some machines forbid other hosts this way
  return {};
}

Result<std::vector<std::string>> cluster_mpirun_line(const Cluster& cluster, const ClusterRun& run,
                                                     const std::vector<std::string>& arguments) {
  const int each = run.ranks_per_node > 0 ? run.ranks_per_node : cluster.spec.ranks_per_node;
  const int ranks = run.ranks > 0 ? run.ranks : each * cluster.spec.nodes;
  const int nodes = (ranks + each - 1) / each;
  if (nodes > cluster.spec.nodes) {
    return usage_error("{} ranks at {} per node need {} nodes; cluster {} has {}", ranks, each,
                       nodes, cluster.spec.name, cluster.spec.nodes);
  }
  QT_ASSIGN(const std::string self, own_path());
  std::vector<std::string> hosts;
  for (int i = 0; i < nodes; ++i) {
    hosts.push_back(fmt::format("{}:{}", cluster.nodes[static_cast<std::size_t>(i)].address, each));
  }
  const int cores = static_cast<int>(cluster.nodes[0].cpus.size());
  const int shared = cluster.shares_cpus ? cluster.spec.nodes : 1;
  const int threads = run.threads > 0 ? run.threads : std::max(1, cores / (each * shared));
  std::vector<std::string> line = {self,     "cluster", "exec", "--name", cluster.spec.name,
                                   "--node", "0",       "--"};
  const auto add = [&](const std::vector<std::string>& words) {
    line.insert(line.end(), words.begin(), words.end());
  };
  add({"mpirun", "--quiet", "--allow-run-as-root", "-n", std::to_string(ranks), "--host",
       join(hosts, ",")});
  add({"--mca", "plm", "rsh", "--mca", "plm_rsh_agent",
       fmt::format("{} cluster agent {}", self, cluster.spec.name), "--mca",
       "plm_rsh_no_tree_spawn", "1"});
  add(attached_daemons());
  // Ranks of a node through shared memory, others over the links and nothing else.
  add({"--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", "--mca", "btl_tcp_if_include",
       cluster.subnet, "--mca", "oob_tcp_if_include", cluster.subnet});
  // The node's cores are its own already; waiting must leave them to whoever computes or carries.
  add({"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-x",
       "OMP_WAIT_POLICY=passive", "-x", fmt::format("OMP_NUM_THREADS={}", threads), self});
  line.insert(line.end(), arguments.begin(), arguments.end());
  return line;
}

}  // namespace quintet
