#include "lab/restarts.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "lab/cluster.h"
#include "lab/host_list.h"
#include "train/checkpoint.h"

namespace quintet {
namespace {

constexpr int kMostInVain = 3;
constexpr double kFirstDelay = 1, kLongestDelay = 60;

std::int64_t newest_step(const std::string& folder) {
  const auto newest = newest_checkpoint(folder);
  return newest ? newest->step : 0;
}

std::string names_of(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.name);
  return join(names, ", ");
}

// All hosts of the run; none where it is on this machine alone.
Result<std::vector<HostSlots>> hosts_of_run(const MpirunOptions& options) {
  if (options.cluster.empty()) {
    if (options.hosts.empty()) return std::vector<HostSlots>();
    return parse_hosts(options.hosts);
  }
  QT_ASSIGN(const Cluster cluster, find_cluster(options.cluster));
  std::vector<HostSlots> hosts;
  for (const ClusterNode& node : cluster.nodes) {
    hosts.push_back({node.address, options.ranks_per_node > 0 ? options.ranks_per_node
                                                              : cluster.spec.ranks_per_node});
  }
  return hosts;
}

Result<std::vector<HostSlots>> those_that_answer(const MpirunOptions& options,
                                                 const std::vector<HostSlots>& hosts) {
  if (options.cluster.empty()) return answering_hosts(hosts);
  QT_ASSIGN(const Cluster cluster, find_cluster(options.cluster));
  // Seen from the first node, where mpirun is started.
  std::vector<HostSlots> there;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (i == 0 || node_answers(cluster, 0, static_cast<int>(i))) there.push_back(hosts[i]);
  return there;
}

// Where the next start goes, and on how many ranks.
struct Next {
  MpirunOptions options;
  bool other_ranks = false;
};

Result<Next> next_start(const MpirunOptions& first, const std::vector<HostSlots>& hosts,
                        const RunConfig& config, std::int64_t global_batch) {
  Next next{first, false};
  if (hosts.empty()) return next;
  QT_ASSIGN(const auto there, those_that_answer(first, hosts));
  if (there.size() == hosts.size()) return next;
  std::vector<HostSlots> gone;
  std::int64_t slots = 0;
  for (const HostSlots& host : hosts) {
    const bool left = std::find(there.begin(), there.end(), host) != there.end();
    if (left) {
      slots += host.slots;
    } else {
      gone.push_back(host);
      next.options.left_out.push_back(host.name);
    }
  }
  log_info("{} {} not answer and {} left out", names_of(gone), gone.size() == 1 ? "does" : "do",
           gone.size() == 1 ? "is" : "are");
  const std::int64_t most = std::min<std::int64_t>(slots, first.ranks);
  const auto ranks = ranks_that_fit(config, global_batch, most);
  if (!ranks.ok()) {
    return make_error(ErrorCode::kPeerLost, "{}: cannot start again on the hosts that are left",
                      ranks.error().message);
  }
  next.other_ranks = ranks.value() != first.ranks;
  next.options.ranks = static_cast<int>(ranks.value());
  if (!next.other_ranks) return next;
  const std::int64_t each = config.parallel.tp * config.parallel.pp;
  log_info(
      "{} rank{} instead of {}: {} data-parallel instead of {}, at the same global batch of {}{}",
      ranks.value(), ranks.value() == 1 ? "" : "s", first.ranks, ranks.value() / each,
      first.ranks / each, global_batch,
      ranks.value() / each < most / each
          ? fmt::format(" ({} would find room, but do not divide it)", most / each)
          : "");
  return next;
}

}  // namespace

bool can_start_again(ErrorCode code, bool got_on) {
  switch (code) {
    case ErrorCode::kPeerLost:
    case ErrorCode::kInternal:
      return true;
    case ErrorCode::kOutOfMemory:
      return got_on;
    case ErrorCode::kUsage:
    case ErrorCode::kBadInput:
    case ErrorCode::kMismatch:
    case ErrorCode::kNonFinite:
    case ErrorCode::kIo:
    case ErrorCode::kInterrupted:
      return false;
  }
  return false;  // a code that is none of ours: mpirun's own, for a line it does not understand
}

Result<std::int64_t> ranks_that_fit(const RunConfig& config, std::int64_t global_batch,
                                    std::int64_t most) {
  const std::int64_t each = config.parallel.tp * config.parallel.pp;
  RunConfig tried = config;
  tried.batch.global = global_batch;
  tried.batch.accumulate = 1;
  Status last;
  for (std::int64_t dp = most / each; dp >= 1; --dp) {
    const auto options = step_options(tried, dp * each);
    if (options.ok()) return dp * each;
    last = options.error();
  }
  if (!last.ok()) return last.error();
  return usage_error("room for {} rank{}, and tp {} x pp {} takes {}", most, most == 1 ? "" : "s",
                     config.parallel.tp, config.parallel.pp, each);
}

std::vector<std::string> arguments_to_go_on(std::vector<std::string> arguments,
                                            std::int64_t global_batch, bool other_ranks) {
  const auto set = [&](const std::string& assignment) {
    arguments.insert(arguments.end(), {"--set", assignment});
  };
  set("output.resume=true");
  if (other_ranks) {
    set(fmt::format("batch.global={}", global_batch));
    set("batch.accumulate=1");  // follows from it
  }
  return arguments;
}

double restart_delay(int in_vain) {
  return std::min(kLongestDelay, kFirstDelay * std::exp2(std::min(in_vain, 30)));
}

Status run_with_restarts(MpirunOptions options, const std::vector<std::string>& arguments,
                         const RunConfig& config, int restarts) {
  const LaunchSignals signals;  // also between two starts
  const std::string& folder = config.output.folder;
  if (folder.empty() || !config.output.checkpoints) {
    return usage_error("--restarts needs checkpoints to start again from: set output.folder{}",
                       config.output.checkpoints ? "" : " and output.checkpoints=true");
  }
  QT_ASSIGN(const std::vector<HostSlots> hosts, hosts_of_run(options));
  if (options.ranks == 0)
    for (const HostSlots& host : hosts) options.ranks += host.slots;
  QT_ASSIGN(const StepOptions step, step_options(config, options.ranks));
  const std::int64_t global_batch = step.global_batch();
  if (config.output.save_every == 0) {
    log_warning(
        "output.save_every = 0: checkpoints only at the end, so that a lost run begins anew");
  }

  Next next{options, false};
  std::vector<std::string> words = arguments;
  int in_vain = 0;
  for (int used = 0;; ++used) {
    const std::int64_t before = newest_step(folder);
    QT_ASSIGN(const auto line, mpirun_line(next.options, words));
    log_info("{}", shell_line(line));
    const CommandEnd end = run_to_end(line);
    if (!end.error) return {};
    // Without a message, where a rank has said it.
    const Error error = end.said ? Error{end.error->code, ""} : *end.error;
    const std::int64_t newest = newest_step(folder);
    const bool got_on = newest > before;
    if (stop_was_asked() || !can_start_again(error.code, got_on)) return error;
    in_vain = got_on ? 0 : in_vain + 1;
    if (used == restarts || in_vain == kMostInVain) {
      log_info("not started again: {}",
               used == restarts
                   ? fmt::format("{} restart{} used up", restarts, restarts == 1 ? " is" : "s are")
                   : fmt::format("{} starts in a row made no new checkpoint", in_vain));
      return error;
    }
    if (!end.said && !error.message.empty()) log_info("{}", error.message);
    const double delay = restart_delay(in_vain);
    const int left = restarts - used - 1;
    log_info("restart {} of {} in {:.0f} s, {}; {} more {} left", used + 1, restarts, delay,
             newest > 0 ? fmt::format("from the checkpoint of step {}", newest)
                        : std::string("from the beginning: there is no checkpoint"),
             left, left == 1 ? "is" : "are");
    if (!wait_unless_stopped(delay)) {
      return make_error(ErrorCode::kInterrupted,
                        "stopped before it was started again; continue with output.resume=true");
    }
    QT_ASSIGN(next, next_start(options, hosts, config, global_batch));
    words = arguments_to_go_on(arguments, global_batch, next.other_ranks);
  }
}

}  // namespace quintet
