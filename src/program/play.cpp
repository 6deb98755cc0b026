#include "program/play.h"

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

// What a collective is about, for people.
std::string subject_of(const Item& i) {
  std::string text = i.unit;
  if (i.micro_batch >= 0) text += fmt::format("{}mb{}", text.empty() ? "" : " ", i.micro_batch);
  return text.empty() ? text : " of " + text;
}

}  // namespace

bool Item::operator==(const Item& other) const {
  return what == other.what && stream == other.stream && kind == other.kind &&
         dtype == other.dtype && reduction == other.reduction && micro_batch == other.micro_batch &&
         unit == other.unit && group == other.group && peer == other.peer && tag == other.tag &&
         bytes == other.bytes && waits == other.waits;
}

RankTrace trace_of(const Program& program, TraceScope scope) {
  RankTrace trace;
  trace.rank = program.place.rank;
  for (const Group& group : program.groups) trace.groups.push_back(group.ranks);
  std::vector<bool> matters(program.ops.size(), scope.every_op);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (is_communication(op.kind) || group_of(op) >= 0 || !op.waits.empty()) matters[i] = true;
    for (const OpId wait : op.waits) matters[index(wait)] = true;
  }
  std::vector<bool> awaited(program.ops.size(), false);
  for (const Op& op : program.ops) {
    for (const OpId wait : op.waits) awaited[index(wait)] = true;
  }
  std::vector<std::int32_t> item_of(program.ops.size(), -1);
  std::int32_t last_computed = -1;
  std::array<std::int32_t, kStreamCount> open{};  // by stream: the item that may grow
  open.fill(-1);
  // Where one loop issues everything it computes all of it, too, copies included.
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (!matters[i]) continue;
    const Op& op = program.ops[i];
    const bool plain = !is_communication(op.kind) && group_of(op) < 0;
    const Stream stream =
        scope.issued_in_order && !is_communication(op.kind) ? Stream::kCompute : op.stream;
    std::int32_t& run = open[static_cast<std::size_t>(stream)];
    if (scope.every_op && plain && run >= 0 && op.waits.empty()) {
      trace.items[index(run)].op = static_cast<std::int32_t>(i);
      item_of[i] = run;
      if (awaited[i]) run = -1;
      continue;
    }
    Item item;
    item.stream = stream;
    item.kind = op.kind;
    item.first_op = item.op = static_cast<std::int32_t>(i);
    for (const OpId wait : op.waits) item.waits.push_back(item_of[index(wait)]);
    if (const auto* message = std::get_if<TransferAttrs>(&op.attrs)) {
      item.what = op.kind == OpKind::kSend ? What::kSend : What::kRecv;
      item.peer = message->peer;
      item.tag = message->tag;
      const Tensor& sent = program.tensor(op.kind == OpKind::kSend ? op.inputs[0] : op.outputs[0]);
      item.bytes = sent.bytes();
      item.dtype = sent.dtype;
    } else if (const std::int32_t group = group_of(op); group >= 0) {
      item.what = What::kCollective;
      item.group = group;
      // What all members must agree on: the larger side, or what a computation talks about.
      item.bytes = program.tensor(op.inputs[0]).bytes();
      item.dtype = program.tensor(op.inputs[0]).dtype;
      item.micro_batch = op.tag.micro_batch;
      if (op.tag.unit >= 0) item.unit = program.units[index(op.tag.unit)].name;
      if (const auto* attrs = std::get_if<CollectiveAttrs>(&op.attrs)) {
        item.reduction = attrs->reduction;
        item.bytes = std::max(item.bytes, program.tensor(op.outputs[0]).bytes());
      }
    }
    item_of[i] = static_cast<std::int32_t>(trace.items.size());
    if (item.stream == Stream::kCompute) {
      last_computed = item_of[i];
    } else if (scope.issued_in_order && last_computed >= 0 &&
               std::find(item.waits.begin(), item.waits.end(), last_computed) == item.waits.end()) {
      item.waits.push_back(last_computed);
    }
    // What follows an op that somebody waits for is an item of its own.
    run = plain && !awaited[i] ? item_of[i] : -1;
    if (scope.issued_in_order && is_communication(op.kind)) open[0] = -1;
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
  Play(const std::vector<RankTrace>& ranks, Clock* clock) : ranks_(ranks), clock_(clock) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Rank state;
      state.done.assign(ranks[r].items.size(), false);
      for (std::size_t i = 0; i < ranks[r].items.size(); ++i) {
        state.streams[index(static_cast<int>(ranks[r].items[i].stream))].push_back(
            static_cast<std::int32_t>(i));
      }
      for (const auto& group : ranks[r].groups) {
        state.meetings.push_back(
            meeting_of_.try_emplace(group, static_cast<std::int32_t>(meeting_of_.size()))
                .first->second);
      }
      state_.push_back(std::move(state));
    }
    collectives_.resize(meeting_of_.size() * kStreamCount);
  }

  std::vector<std::string> run() {
    // Every rank is looked at whenever something it may have waited for has happened.
    for (std::size_t r = 0; r < ranks_.size(); ++r) wake(static_cast<std::int32_t>(r));
    while (findings_.empty()) {
      if (!awake_.empty()) {
        const std::int32_t rank = awake_.back();
        awake_.pop_back();
        state_[index(rank)].awake = false;
        advance(rank);
        continue;
      }
      if (clock_ == nullptr) break;
      const std::optional<std::int32_t> ended = clock_->next();
      if (!ended) break;
      for (const Side& side : under_way_[index(*ended)]) complete(side);
      under_way_[index(*ended)].clear();
      free_ids_.push_back(*ended);
    }
    if (findings_.empty()) report_stuck();
    return findings_;
  }

 private:
  struct Rank {
    std::vector<bool> done;
    std::array<std::vector<std::int32_t>, kStreamCount> streams;
    std::array<std::size_t, kStreamCount> head{};
    std::array<bool, kStreamCount> posted{};  // the head is under way, or waits for its other sides
    std::vector<std::int32_t> meetings;       // by group: the number of its set of ranks
    bool awake = false;
  };

  const Item& item(const Side& s) const { return ranks_[index(s.rank)].items[index(s.item)]; }
  std::string describe(const Side& s) const {
    const Item& i = item(s);
    return fmt::format("rank {} op #{} {}{} ({} bytes) on stream {}", ranks_[index(s.rank)].rank,
                       i.op, name_of(i.kind), subject_of(i), i.bytes, name_of(i.stream));
  }

  void wake(std::int32_t rank) {
    if (state_[index(rank)].awake) return;
    state_[index(rank)].awake = true;
    awake_.push_back(rank);
  }

  void complete(const Side& s) {
    Rank& rank = state_[index(s.rank)];
    const auto stream = index(static_cast<int>(item(s).stream));
    rank.done[index(s.item)] = true;
    ++rank.head[stream];
    rank.posted[stream] = false;
    wake(s.rank);
  }

  // All sides are there.
  void go(std::span<const Side> sides) {
    if (clock_ == nullptr) {
      for (const Side& side : sides) complete(side);
      return;
    }
    if (free_ids_.empty()) {
      free_ids_.push_back(static_cast<std::int32_t>(under_way_.size()));
      under_way_.emplace_back();
    }
    const std::int32_t id = free_ids_.back();
    free_ids_.pop_back();
    under_way_[index(id)].assign(sides.begin(), sides.end());
    clock_->start(id, sides);
  }

  void advance(std::int32_t rank) {
    Rank& state = state_[index(rank)];
    for (std::size_t s = 0; s < kStreamCount; ++s) {
      while (state.head[s] < state.streams[s].size() && !state.posted[s]) {
        const Side side{rank, state.streams[s][state.head[s]]};
        const Item& i = item(side);
        if (!std::all_of(i.waits.begin(), i.waits.end(),
                         [&](std::int32_t w) { return state.done[index(w)]; })) {
          break;
        }
        state.posted[s] = true;
        if (i.what == What::kCompute) {
          go({&side, 1});
          continue;
        }
        if (clock_ != nullptr) clock_->came(side);
        i.what == What::kCollective ? post_collective(side) : post_message(side);
        if (!findings_.empty()) return;
      }
    }
  }

  void post_message(const Side& s) {
    const Item& i = item(s);
    const std::int32_t me = ranks_[index(s.rank)].rank;
    const bool sends = i.what == What::kSend;
    const auto key = std::tuple(sends ? me : i.peer, sends ? i.peer : me, i.tag);
    const auto [other, is_first] = messages_.try_emplace(key, s);
    if (is_first) return;
    const Side first = other->second;
    messages_.erase(other);
    if (item(first).what == i.what) {
      findings_.push_back(fmt::format("{} and {}: two {}s with tag {}", describe(first),
                                      describe(s), name_of(i.kind), i.tag));
    } else if (item(first).bytes != i.bytes || item(first).dtype != i.dtype) {
      findings_.push_back(fmt::format("{} and {}: sizes differ", describe(first), describe(s)));
    } else {
      const std::array<Side, 2> sides = sends ? std::array{s, first} : std::array{first, s};
      go(sides);
    }
  }

  void post_collective(const Side& s) {
    const Item& i = item(s);
    const std::vector<std::int32_t>& members = ranks_[index(s.rank)].groups[index(i.group)];
    const std::int32_t meeting = state_[index(s.rank)].meetings[index(i.group)];
    auto& waiting =
        collectives_[index(meeting) * kStreamCount + static_cast<std::size_t>(i.stream)];
    if (!waiting.empty()) {
      const Item& first = item(waiting.front());
      if (first.kind != i.kind || first.bytes != i.bytes || first.dtype != i.dtype ||
          first.reduction != i.reduction || first.unit != i.unit ||
          first.micro_batch != i.micro_batch) {
        findings_.push_back(
            fmt::format("{} and {} meet in one group and are not the same collective",
                        describe(waiting.front()), describe(s)));
        return;
      }
    }
    waiting.push_back(s);
    if (waiting.size() < members.size()) return;
    const std::vector<Side> all = std::move(waiting);
    waiting.clear();
    go(all);
  }

  void report_stuck() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t s = 0; s < kStreamCount; ++s) {
        const Rank& state = state_[r];
        if (state.head[s] >= state.streams[s].size()) continue;
        const Side side{static_cast<std::int32_t>(r), state.streams[s][state.head[s]]};
        const Item& i = item(side);
        std::string why = "waits for its own rank's other streams";
        if (state.posted[s]) {
          why = i.what == What::kCollective
                    ? fmt::format("waits for all of ranks {}",
                                  fmt::join(ranks_[r].groups[index(i.group)], ", "))
                    : fmt::format("waits for rank {} (tag {})", i.peer, i.tag);
        }
        findings_.push_back(fmt::format("deadlock: {} {}", describe(side), why));
        if (findings_.size() >= 20) return;
      }
    }
  }

  const std::vector<RankTrace>& ranks_;
  Clock* const clock_;
  std::vector<Rank> state_;
  std::vector<std::int32_t> awake_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, Side> messages_;  // from, to, tag
  std::map<std::vector<std::int32_t>, std::int32_t> meeting_of_;
  std::vector<std::vector<Side>> collectives_;  // by meeting and stream: who has come
  std::vector<std::vector<Side>> under_way_;    // by id
  std::vector<std::int32_t> free_ids_;
  std::vector<std::string> findings_;
};

}  // namespace

std::vector<std::string> play(const std::vector<RankTrace>& ranks, Clock* clock) {
  return Play(ranks, clock).run();
}

}  // namespace quintet
