#include "passes/early_update.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/index.h"
#include "program/shards.h"

namespace quintet {
namespace {

// A place is the position in the list as it was before which an op is put.
class EarlyUpdatePass {
 public:
  EarlyUpdatePass(Program& program, std::size_t first)
      : program_(program), first_(first), places_(program.ops.size()) {}

  void run() {
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i] = i + 1;  // what follows it
    list_touches();
    find_last_send();
    find_final_gradients();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (!moves(i)) continue;
      places_[i] = std::max(sent_, place_of(i));
      if (i >= first_) places_[i] = std::max(places_[i], earliest(program_.ops[i].tag));
    }
    move();
  }

 private:
  // An op's use of bytes of a base tensor.
  struct Touch {
    std::size_t op;
    std::int64_t begin, end;
    bool writes;
  };

  // The update, and before it what tensor-parallel ranks still have to sum of their gradients.
  bool moves(std::size_t i) const {
    const Op& op = program_.ops[i];
    return i >= first_ || (op.kind == OpKind::kAllReduce && op.tag.method == Method::kTensor &&
                           op.tag.phase == Phase::kBackward && op.tag.micro_batch < 0);
  }

  template <class Body>
  void for_each_touch(std::size_t i, const Body& body) const {
    const auto visit = [&](TensorId t, bool writes) {
      if (t == kNone) return;
      const Tensor& tensor = program_.tensor(t);
      body(program_.base_of(t),
           Touch{i, tensor.base_offset, tensor.base_offset + tensor.bytes(), writes});
    };
    for (const TensorId t : program_.ops[i].inputs) visit(t, false);
    for (const TensorId t : program_.ops[i].outputs) visit(t, true);
  }

  // Of the tensors that the update uses, in the order of the program.
  void list_touches() {
    for (std::size_t i = first_; i < program_.ops.size(); ++i)
      for_each_touch(i, [&](TensorId base, const Touch&) { touches_[base]; });
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      for_each_touch(i, [&](TensorId base, const Touch& touch) {
        if (const auto found = touches_.find(base); found != touches_.end())
          found->second.push_back(touch);
      });
    }
  }

  // Another stage waits for what this one sends; nobody waits for an update.
  void find_last_send() {
    for (std::size_t i = 0; i < first_; ++i)
      if (program_.ops[i].kind == OpKind::kSend) sent_ = places_[i];
  }

  // Where the backward has written the last of each gradient, and from where on it can be used.
  void find_final_gradients() {
    std::vector<std::size_t> writers(program_.shards.size(), 0);
    for (std::size_t s = 0; s < writers.size(); ++s) {
      for (const Touch& touch : touches_[program_.base_of(program_.shards[s].grad)])
        if (touch.writes && !moves(touch.op)) writers[s] = touch.op;
      final_.push_back(writers[s] + 1);
    }
    std::sort(final_.begin(), final_.end());
    for (std::size_t s = 0; s < writers.size(); ++s) {
      if (unit_of(program_.shards[s]) < 0) continue;
      const std::size_t there = std::max(sent_, places_[writers[s]]);
      const bool arrives =
          program_.ops[writers[s]].stream != Stream::kCompute || program_.place.tp_size > 1;
      std::size_t& usable = usable_[unit_of(program_.shards[s])];
      usable = std::max(usable, arrives ? after_next_gradient(there) : there);
    }
  }

  // Ranks do the same at the same time, also where one of them has less to do than the others, or
  // nothing: what it sums and updates of a unit does not decide, nor what it counts of the norm.
  std::size_t earliest(const Tag& tag) const {
    if (tag.phase == Phase::kSetup) return 0;
    const auto found = usable_.find(tag.unit);
    return found == usable_.end() ? first_ : found->second;
  }

  // Behind all that has to come before op `i`.
  std::size_t place_of(std::size_t i) const {
    std::size_t place = 0;
    for_each_touch(i, [&](TensorId base, const Touch& mine) {
      for (const Touch& other : touches_.at(base)) {
        if (other.op >= i) break;
        // Of the backward's, no matter which bytes: those are not the same on all ranks.
        const bool meet = !moves(other.op) || (other.begin < mine.end && mine.begin < other.end);
        if (meet && (mine.writes || other.writes))
          place = std::max(place, behind(other.op, program_.ops[i].stream));
      }
    });
    return place;
  }

  // Where an op of this stream uses what `op` did. What comes from elsewhere arrives while the next
  // gradients are computed, and that computation is not to stand still for it.
  std::size_t behind(std::size_t op, Stream stream) const {
    const bool arrives = stream == Stream::kCompute && program_.ops[op].stream != stream;
    return arrives ? after_next_gradient(places_[op]) : places_[op];
  }
  std::size_t after_next_gradient(std::size_t place) const {
    const auto next = std::upper_bound(final_.begin(), final_.end(), place);
    return next == final_.end() ? first_ : *next;
  }

  void move() {
    std::vector<std::vector<std::size_t>> before(first_ + 1);
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (moves(i)) before[places_[i]].push_back(i);
    std::vector<std::size_t> order;
    for (std::size_t place = 0; place <= first_; ++place) {
      order.insert(order.end(), before[place].begin(), before[place].end());
      if (place < first_ && !moves(place)) order.push_back(place);
    }
    std::vector<OpId> now(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) now[order[k]] = static_cast<OpId>(k);
    std::vector<Op> ops;
    for (const std::size_t i : order) {
      ops.push_back(std::move(program_.ops[i]));
      for (OpId& wait : ops.back().waits) {
        wait = now[index(wait)];
        QT_CHECK(wait < now[i], "op {} would wait for a later one", now[i]);
      }
    }
    program_.ops = std::move(ops);
  }

  Program& program_;
  const std::size_t first_;
  std::vector<std::size_t> places_;
  std::map<TensorId, std::vector<Touch>> touches_;  // by base tensor
  std::size_t sent_ = 0;                            // behind the last send
  std::vector<std::size_t> final_;                  // where gradients are, in order
  std::map<std::int16_t, std::size_t> usable_;      // where a unit's can be used
};

}  // namespace

void update_early(Program& program, std::size_t first) {
  EarlyUpdatePass(program, first).run();
}

}  // namespace quintet
