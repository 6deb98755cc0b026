#include "parallel/peer_times.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <sched.h>

#include "base/clock.h"
#include "base/index.h"
#include "program/op_decl.h"

namespace quintet {
namespace {

constexpr int kLooks = 15;
constexpr std::int32_t kKey = 1001;  // of the communicator, unlike any stream's
constexpr double kUnknown = -std::numeric_limits<double>::infinity();

}  // namespace

std::vector<double> clock_offsets(World& world) {
  std::string mine;
  for (int i = 0; i < kLooks; ++i) {
    world.barrier();
    mine += fmt::format("{:.9f} ", now());
  }
  std::vector<std::vector<double>> looks;
  for (const std::string& text : world.gather(mine)) {
    std::istringstream words(text);
    looks.emplace_back();
    for (double time = 0; words >> time;) looks.back().push_back(time);
  }
  std::string all;
  for (const auto& times : looks) {
    std::vector<double> ahead;
    for (std::size_t i = 0; i < times.size(); ++i) ahead.push_back(times[i] - looks[0][i]);
    std::nth_element(ahead.begin(), ahead.begin() + kLooks / 2, ahead.end());
    all += fmt::format("{:.9f} ", ahead[kLooks / 2]);
  }
  std::istringstream words(world.broadcast(all));
  std::vector<double> offsets;
  for (double offset = 0; words >> offset;) offsets.push_back(offset);
  return offsets;
}

PeerTimes::PeerTimes(World& world, const Grid& grid, const Program& program)
    : others_came_(program.ops.size(), kUnknown) {
  if (program.place.pp_size == 1) return;
  offset_ = clock_offsets(world)[index(world.rank())];
  std::vector<std::int32_t> all(index(world.size()));
  std::iota(all.begin(), all.end(), 0);
  everyone_ = world.group(all, kKey);
  // What two ranks do together has a name that both know: a message its tag, a collective its
  // group, stream and number. Sorted by it, both have the same list.
  using Name = std::tuple<std::vector<std::int32_t>, Stream, std::int64_t>;
  std::map<std::int32_t, std::map<Name, OpId>> to, from;
  std::map<std::pair<std::vector<std::int32_t>, Stream>, std::int64_t> numbers;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const auto id = static_cast<OpId>(i);
    if (const auto* message = std::get_if<TransferAttrs>(&op.attrs)) {
      auto& list = (op.kind == OpKind::kSend ? to : from)[message->peer];
      list[{{}, Stream::kCompute, message->tag}] = id;
    } else if (const std::int32_t group = group_of(op); group >= 0) {
      const auto& ranks = program.groups[index(group)].ranks;
      const Name name{ranks, op.stream, numbers[{ranks, op.stream}]++};
      for (const std::int32_t rank : ranks) {
        if (grid.place_of(rank).pp != program.place.pp) to[rank][name] = from[rank][name] = id;
      }
    }
  }
  const auto prepare = [&](const auto& lists, std::vector<Peer>& peers, bool sending) {
    for (const auto& [rank, by_name] : lists) {
      Peer& peer = peers.emplace_back();
      for (const auto& [name, op] : by_name) peer.ops.push_back(op);
      peer.times.resize(peer.ops.size());
      const auto bytes = static_cast<std::int64_t>(peer.times.size() * sizeof(double));
      peer.transfer = sending ? everyone_->send(peer.times.data(), bytes, rank, 0)
                              : everyone_->recv(peer.times.data(), bytes, rank, 0);
    }
  };
  prepare(to, to_, true);
  prepare(from, from_, false);
}

std::span<const double> PeerTimes::exchange(double began, std::span<const double> start) {
  for (Peer& peer : from_) peer.transfer->start();
  for (Peer& peer : to_) {
    for (std::size_t i = 0; i < peer.ops.size(); ++i)
      peer.times[i] = began + start[index(peer.ops[i])] - offset_;
    peer.transfer->start();
  }
  const auto finish = [](std::vector<Peer>& peers) {
    for (Peer& peer : peers) {
      while (!peer.transfer->test()) ::sched_yield();
    }
  };
  finish(from_);
  finish(to_);
  std::fill(others_came_.begin(), others_came_.end(), kUnknown);
  for (const Peer& peer : from_) {
    for (std::size_t i = 0; i < peer.ops.size(); ++i) {
      double& came = others_came_[index(peer.ops[i])];
      came = std::max(came, peer.times[i] + offset_ - began);
    }
  }
  return others_came_;
}

}  // namespace quintet
