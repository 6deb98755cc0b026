#include "program/world_verifier.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/index.h"
#include "program/op_decl.h"

namespace quintet {
namespace {

using Item = RankTrace::Item;
using What = Item::What;

}  // namespace

RankTrace trace_of(const Program& program) {
  RankTrace trace;
  trace.rank = program.place.rank;
  for (const Group& group : program.groups) trace.groups.push_back(group.ranks);
  // Of the computation, only what waits for others or is waited for.
  std::vector<bool> matters(program.ops.size(), false);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (is_communication(op.kind) || group_of(op) >= 0 || !op.waits.empty()) matters[i] = true;
    for (const OpId wait : op.waits) matters[index(wait)] = true;
  }
  std::vector<std::int32_t> item_of(program.ops.size(), -1);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (!matters[i]) continue;
    const Op& op = program.ops[i];
    Item item;
    item.stream = op.stream;
    item.kind = op.kind;
    item.op = static_cast<std::int32_t>(i);
    for (const OpId wait : op.waits) item.waits.push_back(item_of[index(wait)]);
    if (const auto* message = std::get_if<TransferAttrs>(&op.attrs)) {
      item.what = op.kind == OpKind::kSend ? What::kSend : What::kRecv;
      item.peer = message->peer;
      item.tag = message->tag;
      item.bytes = program.tensor(op.kind == OpKind::kSend ? op.inputs[0] : op.outputs[0]).bytes();
    } else if (const std::int32_t group = group_of(op); group >= 0) {
      item.what = What::kCollective;
      item.group = group;
      // What all members must agree on: the larger side, or what a computation talks about.
      item.bytes = program.tensor(op.inputs[0]).bytes();
      if (is_communication(op.kind))
        item.bytes = std::max(item.bytes, program.tensor(op.outputs[0]).bytes());
    }
    item_of[i] = static_cast<std::int32_t>(trace.items.size());
    trace.items.push_back(std::move(item));
  }
  return trace;
}

RankTrace renamed(RankTrace trace, const std::function<std::int32_t(std::int32_t)>& name) {
  trace.rank = name(trace.rank);
  for (auto& group : trace.groups) {
    std::vector<std::int32_t> members;
    for (const std::int32_t rank : group) {
      const std::int32_t member = name(rank);
      if (std::find(members.begin(), members.end(), member) == members.end())
        members.push_back(member);
    }
    group = std::move(members);
  }
  for (Item& item : trace.items) {
    if (item.peer >= 0) item.peer = name(item.peer);
  }
  return trace;
}

namespace {

class Play {
 public:
  explicit Play(const std::vector<RankTrace>& ranks) : ranks_(ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Rank state;
      state.done.assign(ranks[r].items.size(), false);
      for (std::size_t i = 0; i < ranks[r].items.size(); ++i) {
        state.streams[index(static_cast<int>(ranks[r].items[i].stream))].push_back(
            static_cast<std::int32_t>(i));
      }
      state_.push_back(std::move(state));
    }
  }

  std::vector<std::string> run() {
    // Every rank is looked at whenever something it may have waited for has happened.
    for (std::size_t r = 0; r < ranks_.size(); ++r) wake(static_cast<std::int32_t>(r));
    while (!awake_.empty() && findings_.empty()) {
      const std::int32_t rank = awake_.back();
      awake_.pop_back();
      state_[index(rank)].awake = false;
      advance(rank);
    }
    if (findings_.empty()) report_stuck();
    return findings_;
  }

 private:
  struct Rank {
    std::vector<bool> done;
    std::array<std::vector<std::int32_t>, kStreamCount> streams;
    std::array<std::size_t, kStreamCount> head{};
    std::array<bool, kStreamCount> posted{};  // the head has announced itself to its peers
    bool awake = false;
  };
  struct Posted {
    std::int32_t rank, item;
  };

  const Item& item(const Posted& p) const { return ranks_[index(p.rank)].items[index(p.item)]; }
  std::string describe(const Posted& p) const {
    const Item& i = item(p);
    return fmt::format("rank {} op #{} {} ({} bytes) on stream {}", ranks_[index(p.rank)].rank,
                       i.op, name_of(i.kind), i.bytes, name_of(i.stream));
  }

  void wake(std::int32_t rank) {
    if (state_[index(rank)].awake) return;
    state_[index(rank)].awake = true;
    awake_.push_back(rank);
  }

  void complete(const Posted& p) {
    Rank& rank = state_[index(p.rank)];
    const auto stream = index(static_cast<int>(item(p).stream));
    rank.done[index(p.item)] = true;
    ++rank.head[stream];
    rank.posted[stream] = false;
    wake(p.rank);
  }

  void advance(std::int32_t rank) {
    Rank& state = state_[index(rank)];
    for (std::size_t s = 0; s < kStreamCount; ++s) {
      while (state.head[s] < state.streams[s].size() && !state.posted[s]) {
        const Posted p{rank, state.streams[s][state.head[s]]};
        const Item& i = item(p);
        if (!std::all_of(i.waits.begin(), i.waits.end(),
                         [&](std::int32_t w) { return state.done[index(w)]; })) {
          break;
        }
        if (i.what == What::kCompute) {
          complete(p);
          continue;
        }
        state.posted[s] = true;
        i.what == What::kCollective ? post_collective(p) : post_message(p);
        if (!findings_.empty()) return;
      }
    }
  }

  void post_message(const Posted& p) {
    const Item& i = item(p);
    const std::int32_t me = ranks_[index(p.rank)].rank;
    const bool sends = i.what == What::kSend;
    const auto key = std::tuple(sends ? me : i.peer, sends ? i.peer : me, i.tag);
    const auto [other, is_first] = messages_.try_emplace(key, p);
    if (is_first) return;
    const Posted first = other->second;
    messages_.erase(other);
    if (item(first).what == i.what) {
      findings_.push_back(fmt::format("{} and {}: two {}s with tag {}", describe(first),
                                      describe(p), name_of(i.kind), i.tag));
    } else if (item(first).bytes != i.bytes) {
      findings_.push_back(fmt::format("{} and {}: sizes differ", describe(first), describe(p)));
    } else {
      complete(first);
      complete(p);
    }
  }

  void post_collective(const Posted& p) {
    const Item& i = item(p);
    const std::vector<std::int32_t>& members = ranks_[index(p.rank)].groups[index(i.group)];
    auto& waiting = collectives_[{members, i.stream}];
    if (!waiting.empty()) {
      const Item& first = item(waiting.front());
      if (first.kind != i.kind || first.bytes != i.bytes) {
        findings_.push_back(
            fmt::format("{} and {} meet in one group and are not the same collective",
                        describe(waiting.front()), describe(p)));
        return;
      }
    }
    waiting.push_back(p);
    if (waiting.size() < members.size()) return;
    const std::vector<Posted> all = std::move(waiting);
    waiting.clear();
    for (const Posted& member : all) complete(member);
  }

  void report_stuck() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t s = 0; s < kStreamCount; ++s) {
        const Rank& state = state_[r];
        if (state.head[s] >= state.streams[s].size()) continue;
        const Posted p{static_cast<std::int32_t>(r), state.streams[s][state.head[s]]};
        const Item& i = item(p);
        std::string why = "waits for its own rank's other streams";
        if (state.posted[s]) {
          why = i.what == What::kCollective
                    ? fmt::format("waits for all of ranks {}",
                                  fmt::join(ranks_[r].groups[index(i.group)], ", "))
                    : fmt::format("waits for rank {} (tag {})", i.peer, i.tag);
        }
        findings_.push_back(fmt::format("deadlock: {} {}", describe(p), why));
        if (findings_.size() >= 20) return;
      }
    }
  }

  const std::vector<RankTrace>& ranks_;
  std::vector<Rank> state_;
  std::vector<std::int32_t> awake_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, Posted>
      messages_;  // from, to, tag
  std::map<std::pair<std::vector<std::int32_t>, Stream>, std::vector<Posted>> collectives_;
  std::vector<std::string> findings_;
};

}  // namespace

std::vector<std::string> verify_world(const std::vector<RankTrace>& ranks) {
  return Play(ranks).run();
}

}  // namespace quintet
