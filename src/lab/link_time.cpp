#include "lab/link_time.h"

#include <algorithm>
#include <cmath>

namespace quintet {
namespace {

bool is_measured(const std::vector<std::string>& measured, std::string_view name) {
  return std::find(measured.begin(), measured.end(), name) != measured.end();
}

// Bytes that the ranks of one node send to others while one rank sends `bytes_sent` in all.
double node_sends(const Talk& talk, const Placement::Span& span) {
  const auto sent = static_cast<double>(talk.bytes_sent);
  const double members = span.members;
  // A ring leaves each node once, whatever stands in it.
  if (talk.algorithm == Algorithm::kRing) return sent;
  // Everybody to everybody: of what a member sends, the part to those elsewhere.
  double most = 0;
  for (const double here :
       {static_cast<double>(span.most_on_a_node), static_cast<double>(span.least_on_a_node)})
    most = std::max(most, here * sent * (members - here) / (members - 1));
  return most;
}

// Steps one after the other, each of which takes a latency: (inside a node, between nodes).
std::pair<double, double> steps_of(const Talk& talk, OpKind kind, const Placement::Span& span) {
  const double n = span.members, k = span.nodes, here = span.most_on_a_node;
  const auto rounds = static_cast<double>(talk.rounds);
  if (talk.algorithm == Algorithm::kRing) {
    // Rings for gathers; all-reduces of little go along a tree, whichever is sooner done.
    const bool reduces_all = kind == OpKind::kAllReduce || kind == OpKind::kLinearCrossEntropy;
    const double passes = reduces_all ? 2 * (kind == OpKind::kAllReduce ? 1 : rounds) : 1;
    const double ring = n - 1, tree = std::log2(here) + std::log2(k);
    if (reduces_all && tree < ring) return {passes * std::log2(here), passes * std::log2(k)};
    return {passes * (ring - (k - 1)), passes * (k - 1)};
  }
  // A message to each of the others, one started after the other.
  const double others = talk.algorithm == Algorithm::kMessage ? 1 : n - 1;
  return k > 1 ? std::pair(rounds * std::max(0.0, here - 1), rounds * (others - (here - 1)))
               : std::pair(rounds * others, 0.0);
}

}  // namespace

LinkTime link_time(const Machine& machine, OpKind kind, const Talk& talk,
                   const Placement::Span& span) {
  const bool cpu = machine.kind() == Device::kCpu;
  const bool crosses = span.nodes > 1;
  const auto sent =
      static_cast<double>(talk.algorithm == Algorithm::kMessage ? talk.bytes : talk.bytes_sent);
  const double inside_rate =
      machine.inside.bytes_per_second() * static_cast<double>(machine.inside.links);
  const double one_link = machine.between.bytes_per_second();
  const double node_rate = one_link * static_cast<double>(machine.between.links);

  // 1. What its bytes need of the network and of the links inside.
  double network_seconds = 0;  // of all the node's links
  if (crosses) {
    network_seconds = talk.algorithm == Algorithm::kMessage ? sent / node_rate
                                                            : node_sends(talk, span) / node_rate;
  }
  LinkTime result;
  // 2. Measured as it is: inside a node, or one member on each.
  const OpKind measured_kind = kind == OpKind::kRecv                 ? OpKind::kSend
                               : kind == OpKind::kLinearCrossEntropy ? OpKind::kAllReduce
                                                                     : kind;
  if (!crosses || span.nodes == span.members) {
    const auto rounds = kind == OpKind::kLinearCrossEntropy ? std::max<std::int64_t>(talk.rounds, 1)
                                                            : std::int64_t{1};
    if (const auto measured = machine.collective_seconds({measured_kind, crosses, span.members},
                                                         talk.bytes / rounds)) {
      result.time = {measured->seconds * static_cast<double>(rounds), measured->origin};
    }
  }
  // 3. Otherwise by its algorithm.
  if (result.time.seconds == 0) {
    const auto [inside_steps, between_steps] = steps_of(talk, kind, span);
    double seconds = 0;
    if (talk.algorithm == Algorithm::kMessage) {
      seconds = sent / (crosses ? one_link : inside_rate);
    } else if (talk.algorithm == Algorithm::kRing) {
      // The members of a node reach the links that belong to them.
      const double links =
          std::clamp(static_cast<double>(machine.between.links * span.least_on_a_node) /
                         static_cast<double>(std::max<std::int64_t>(machine.node.devices, 1)),
                     1.0, static_cast<double>(machine.between.links));
      const double slowest =
          !crosses ? inside_rate
                   : std::min(links * one_link, span.most_on_a_node > 1 ? inside_rate : 1e30);
      seconds = sent / slowest;
    } else {
      const double near = crosses ? sent * (span.most_on_a_node - 1) / (span.members - 1) : sent;
      seconds = std::max(near / inside_rate, network_seconds);
      // What came is read and summed by the rank itself.
      const bool reduces = talk.algorithm != Algorithm::kGather;
      if (reduces && cpu)
        seconds += static_cast<double>(talk.bytes) / machine.memory_bytes_per_second();
    }
    seconds += inside_steps * machine.inside.latency() + between_steps * machine.between.latency();
    if (!cpu) seconds += machine.device.op_us * 1e-6;
    const LinkSection& link = crosses ? machine.between : machine.inside;
    result.time = {seconds, is_measured(link.measured, "gb_per_s") ? Origin::kInterpolated
                                                                   : Origin::kDataSheet};
  }
  if (result.time.seconds <= 0) return result;
  // 4. What it needs of what others need, too.
  result.network = std::min(1.0, network_seconds / result.time.seconds);
  if (cpu) {
    // The rank itself copies what it sends and receives.
    const double thread_rate = machine.between.thread_gb_per_s * 1e9;
    const double copying = sent / (thread_rate > 0 ? thread_rate : inside_rate / 2);
    result.thread = crosses ? std::min(1.0, copying / result.time.seconds) : 1.0;
  }
  return result;
}

}  // namespace quintet
