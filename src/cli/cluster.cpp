#include "lab/cluster.h"

#include <cerrno>
#include <cstring>

#include <fmt/ranges.h>
#include <unistd.h>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/interrupt.h"

namespace quintet {
namespace {

struct ClusterFileSection {
  std::string name = "lab";
  std::int64_t nodes = 2, ranks_per_node = 1;
  std::string bandwidth = "1gbit";
  void list(FieldList& fields) {
    fields.add("name", name, "the cluster's name");
    fields.add("nodes", nodes, "nodes", between(1, 250));
    fields.add("ranks_per_node", ranks_per_node, "ranks that a node is meant for",
               between(1, 1024));
    fields.add("bandwidth", bandwidth,
               "of each node's link, each way: 500mbit, 2.5gbit; none: not shaped");
  }
};

struct ClusterUpOptions {
  std::string file, name, bandwidth;
  int nodes = 0, ranks_per_node = 0;
};

// The file first, then what was said on the command line.
Result<ClusterSpec> spec_of(const ClusterUpOptions& options) {
  ClusterFileSection section;
  if (!options.file.empty()) {
    QT_ASSIGN(const std::string text, read_file(options.file));
    QT_ASSIGN(const ConfigValues values, parse_config(text, options.file));
    FieldList fields;
    fields.add_section("cluster", "An emulated cluster.", section);
    QT_TRY(apply_config(values, fields, "docs/studies.md"));
  }
  if (!options.name.empty()) section.name = options.name;
  if (!options.bandwidth.empty()) section.bandwidth = options.bandwidth;
  if (options.nodes > 0) section.nodes = options.nodes;
  if (options.ranks_per_node > 0) section.ranks_per_node = options.ranks_per_node;
  ClusterSpec spec{section.name, static_cast<int>(section.nodes),
                   static_cast<int>(section.ranks_per_node), 0};
  if (section.bandwidth != "none") {
    QT_ASSIGN(spec.bandwidth, parse_bandwidth(section.bandwidth));
  }
  return spec;
}

std::string links_text(double bandwidth) {
  return bandwidth > 0 ? bandwidth_text(bandwidth) : "not shaped";
}

Status cluster_up_command(const ClusterUpOptions& options) {
  QT_ASSIGN(const ClusterSpec spec, spec_of(options));
  const std::atomic<bool>& interrupted = interrupt_flag();
  QT_ASSIGN(Cluster cluster, cluster_up(spec));
  std::string carried;
  if (spec.nodes > 1 && spec.bandwidth > 0) {
    const auto measured = measure_link(cluster, 0, spec.nodes - 1);
    if (!measured.ok()) {
      static_cast<void>(cluster_down(spec.name).ok());
      return measured.error();
    }
    carried = fmt::format(", measured {}", bandwidth_text(measured.value()));
  }
  if (interrupted) {
    QT_TRY(cluster_down(spec.name));
    return make_error(ErrorCode::kInterrupted, "interrupted; nothing is left of cluster {}",
                      spec.name);
  }
  fmt::print("cluster {}: {} nodes for {} ranks each, {}, links of {}{}\n", spec.name, spec.nodes,
             spec.ranks_per_node, cluster.subnet, links_text(spec.bandwidth), carried);
  fmt::print(
      "start a run on it: quintet launch --cluster {} -- train ...\n"
      "remove it: quintet cluster down --name {}\n",
      spec.name, spec.name);
  return {};
}

Status cluster_down_command(const std::string& name, bool all) {
  const std::vector<std::string> names = all ? cluster_names() : std::vector<std::string>{name};
  std::size_t removed = 0;
  for (const std::string& one : names) {
    QT_ASSIGN(const auto spaces, cluster_down(one));
    if (spaces.empty()) continue;
    ++removed;
    fmt::print("cluster {}: removed {}\n", one, fmt::join(spaces, ", "));
  }
  if (removed == 0) fmt::print("nothing to remove\n");
  return {};
}

Status cluster_status(bool json) {
  Json all = Json::array();
  for (const std::string& name : cluster_names()) {
    const auto found = find_cluster(name);
    if (!found.ok()) {
      if (!json) {
        fmt::print("{}: left over without its state; `quintet cluster down --name {}` removes it\n",
                   name, name);
      }
      all.push_back({{"name", name}, {"left_over", true}});
      continue;
    }
    const Cluster& cluster = found.value();
    Json nodes = Json::array();
    if (!json) {
      fmt::print("{}: {}, {} ranks per node, links {}\n", name, cluster.subnet,
                 cluster.spec.ranks_per_node, links_text(cluster.spec.bandwidth));
    }
    for (const ClusterNode& node : cluster.nodes) {
      const std::size_t processes = processes_on(node).size();
      nodes.push_back({{"host", node.host},
                       {"address", node.address},
                       {"cpus", node.cpus},
                       {"processes", processes}});
      if (!json) {
        fmt::print("  {:<20} {:<16} cores {:<12} {} process{}\n", node.host, node.address,
                   fmt::format("{}", fmt::join(node.cpus, ",")), processes,
                   processes == 1 ? "" : "es");
      }
    }
    all.push_back({{"name", name},
                   {"subnet", cluster.subnet},
                   {"ranks_per_node", cluster.spec.ranks_per_node},
                   {"bandwidth", cluster.spec.bandwidth},
                   {"nodes", nodes}});
  }
  if (json) {
    fmt::print("{}\n", to_text(all, 2));
  } else if (all.empty()) {
    fmt::print("no cluster is up\n");
  }
  return {};
}

// Becomes the command, on a node.
Status exec_on(const std::string& name, int node, std::vector<std::string> words) {
  QT_TRY(cluster_possible());
  QT_ASSIGN(const Cluster cluster, find_cluster(name));
  QT_TRY(enter_node(cluster, node));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return io_error("cannot start {}: {}", words[0], std::strerror(errno));
}

// What mpirun calls instead of ssh: options, the host's address, a command for its shell.
Status agent(const std::string& name, const std::vector<std::string>& words) {
  QT_ASSIGN(const Cluster cluster, find_cluster(name));
  std::size_t at = 0;
  while (at < words.size() && words[at].rfind('-', 0) == 0) ++at;
  for (int i = 0; at < words.size() && i < cluster.spec.nodes; ++i) {
    const ClusterNode& node = cluster.nodes[static_cast<std::size_t>(i)];
    if (node.address != words[at] && node.host != words[at]) continue;
    const std::vector<std::string> command(words.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                                           words.end());
    return exec_on(name, i, {"sh", "-c", join(command, " ")});
  }
  return usage_error("cluster {} has no host {}", name, at < words.size() ? words[at] : "");
}

void add_cluster_up(CLI::App& cluster, Action& action) {
  CLI::App* up = cluster.add_subcommand("up", "make an emulated cluster on this machine");
  auto options = std::make_shared<ClusterUpOptions>();
  up->add_option("--nodes", options->nodes, "nodes (default 2)")->check(CLI::Range(1, 250));
  up->add_option("--ranks-per-node", options->ranks_per_node, "ranks per node (default 1)")
      ->check(CLI::Range(1, 1024));
  up->add_option("--bandwidth", options->bandwidth,
                 "of each node's link, each way, e.g. 1gbit (default); none: not shaped");
  up->add_option("--name", options->name, "the cluster's name (default lab)");
  up->add_option("--file", options->file, "TOML file with these in a section [cluster]");
  up->footer("Example: quintet cluster up --nodes 4 --ranks-per-node 2 --bandwidth 1gbit");
  up->callback([options, &action] { action = [options] { return cluster_up_command(*options); }; });
}

void add_cluster_others(CLI::App& cluster, Action& action) {
  struct Shared {
    std::string name = "lab";
    bool all = false, json = false;
    int node = 0;
    std::vector<std::string> words;
  };
  auto shared = std::make_shared<Shared>();
  CLI::App* down = cluster.add_subcommand("down", "end what runs on a cluster and remove it");
  down->add_option("--name", shared->name, "the cluster's name")->capture_default_str();
  down->add_flag("--all", shared->all, "every emulated cluster of this machine");
  down->footer("Example: quintet cluster down --name lab");
  down->callback([shared, &action] {
    action = [shared] { return cluster_down_command(shared->name, shared->all); };
  });

  CLI::App* status = cluster.add_subcommand("status", "list clusters and their nodes");
  status->add_flag("--json", shared->json, "print JSON");
  status->footer("Example: quintet cluster status");
  status->callback(
      [shared, &action] { action = [shared] { return cluster_status(shared->json); }; });

  CLI::App* exec = cluster.add_subcommand("exec", "run a command on a node");
  exec->add_option("--name", shared->name, "the cluster's name")->capture_default_str();
  exec->add_option("--node", shared->node, "which node")->capture_default_str();
  exec->add_option("command", shared->words, "the command, after --")->required();
  exec->footer("Example: quintet cluster exec --node 1 -- ip addr");
  exec->callback([shared, &action] {
    action = [shared] { return exec_on(shared->name, shared->node, shared->words); };
  });

  CLI::App* remote = cluster.add_subcommand("agent", "what mpirun calls instead of ssh");
  remote->group("");  // not for people
  remote->prefix_command();
  remote->callback([shared, remote, &action] {
    action = [words = remote->remaining()] {
      if (words.empty()) return Status(usage_error("cluster agent: a cluster's name is missing"));
      return agent(words[0], {words.begin() + 1, words.end()});
    };
  });
}

}  // namespace

void add_cluster(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "cluster",
      "emulate a cluster on this machine: nodes, host names, links of a given bandwidth");
  command->require_subcommand(1);
  add_cluster_up(*command, action);
  add_cluster_others(*command, action);
  command->footer(
      "Needs root and iproute2. Example: quintet cluster up --nodes 4 --bandwidth 1gbit");
}

}  // namespace quintet
