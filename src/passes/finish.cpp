#include "passes/finish.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/index.h"

namespace quintet {
namespace {

using Clock = std::array<OpId, kStreamCount>;

// The last ops to touch a run of bytes: the writer, and on each stream the last reader since.
struct Piece {
  std::int64_t end = 0;
  OpId writer = -1;
  Clock readers{};
};

// Keeps Ordering's clocks up to date while waits are being added, which Ordering itself cannot.
class WaitInserter {
 public:
  explicit WaitInserter(Program& program)
      : program_(program), clocks_(program.ops.size()), pieces_(program.tensors.size()) {
    last_.fill(-1);
  }

  void run() {
    for (OpId i = 0; i < static_cast<OpId>(program_.ops.size()); ++i) {
      Op& op = program_.ops[index(i)];
      Clock& clock = clocks_[index(i)];
      clock.fill(-1);
      const auto stream = static_cast<std::size_t>(op.stream);
      if (last_[stream] >= 0) join(clock, last_[stream]);
      const std::vector<OpId> given = std::move(op.waits);
      op.waits.clear();
      for (const OpId wait : given) require(op, clock, wait);
      for (const TensorId t : op.inputs) {
        if (t != kNone) visit(t, [&](Piece& piece) { require(op, clock, piece.writer); });
      }
      for (const TensorId t : op.outputs) {
        if (t == kNone) continue;
        visit(t, [&](Piece& piece) {
          require(op, clock, piece.writer);
          for (const OpId reader : piece.readers) require(op, clock, reader);
        });
      }
      for (const TensorId t : op.inputs) {
        if (t != kNone) visit(t, [&](Piece& piece) { piece.readers[stream] = i; });
      }
      for (const TensorId t : op.outputs) {
        if (t == kNone) continue;
        visit(t, [&](Piece& piece) {
          piece.writer = i;
          piece.readers.fill(-1);
        });
      }
      last_[stream] = i;
    }
  }

 private:
  void join(Clock& clock, OpId before) {
    const Clock& theirs = clocks_[index(before)];
    for (std::size_t s = 0; s < kStreamCount; ++s) clock[s] = std::max(clock[s], theirs[s]);
    auto& own = clock[static_cast<std::size_t>(program_.ops[index(before)].stream)];
    own = std::max(own, before);
  }

  void require(Op& op, Clock& clock, OpId before) {
    if (before < 0) return;
    const auto stream = static_cast<std::size_t>(program_.ops[index(before)].stream);
    if (clock[stream] >= before) return;
    op.waits.push_back(before);
    join(clock, before);
  }

  // Calls body for the pieces that make up a tensor's bytes, cut where needed.
  template <class Body>
  void visit(TensorId tensor, const Body& body) {
    const Tensor& t = program_.tensor(tensor);
    if (t.bytes() == 0) return;
    auto& pieces = pieces_[index(program_.base_of(tensor))];
    if (pieces.empty()) {
      Piece whole{program_.tensor(program_.base_of(tensor)).bytes(), -1, {}};
      whole.readers.fill(-1);
      pieces[0] = whole;
    }
    const std::int64_t begin = t.base_offset, end = begin + t.bytes();
    for (const std::int64_t edge : {begin, end}) {
      const auto next = pieces.lower_bound(edge);
      if (next != pieces.end() && next->first == edge) continue;
      const auto piece = std::prev(next);
      if (piece->second.end <= edge) continue;
      const Piece rest = piece->second;
      piece->second.end = edge;
      pieces.insert({edge, rest});
    }
    for (auto at = pieces.find(begin); at != pieces.end() && at->first < end; ++at)
      body(at->second);
  }

  Program& program_;
  std::vector<Clock> clocks_;
  Clock last_{};
  std::vector<std::map<std::int64_t, Piece>> pieces_;  // by base tensor, by first byte
};

}  // namespace

void drop_first_addends(Program& program) {
  std::vector<bool> written(program.tensors.size(), false);
  for (Op& op : program.ops) {
    for (const TensorId t : op.outputs) {
      if (t == kNone) continue;
      // Optimizer state and the like hold something from the step before; gradients and the loss do
      // not.
      const Storage storage = program.tensor(t).storage;
      if (is_resident(storage) && storage != Storage::kIo) continue;
      // A collective's input is what it works on, not an addend.
      if (!written[index(t)] && !is_communication(op.kind)) {
        std::replace(op.inputs.begin(), op.inputs.end(), t, kNone);
      }
      written[index(t)] = true;
    }
  }
}

void insert_waits(Program& program) {
  WaitInserter(program).run();
}

void remove_unused_tensors(Program& program) {
  std::vector<bool> used(program.tensors.size(), false);
  const auto use = [&](TensorId t) {
    if (t == kNone) return;
    used[index(t)] = true;
    used[index(program.base_of(t))] = true;
  };
  const auto for_each_reference = [&](auto&& visit) {
    for (Op& op : program.ops) {
      for (TensorId& t : op.inputs) visit(t);
      for (TensorId& t : op.outputs) visit(t);
      visit(op.workspace);
    }
    for (TensorId& t : program.results) visit(t);
    for (Unit& unit : program.units) {
      visit(unit.params);
      visit(unit.grads);
    }
    for (Shard& shard : program.shards) {
      for (TensorId* t : {&shard.grad, &shard.working, &shard.master, &shard.whole, &shard.ema})
        visit(*t);
      for (TensorId& t : shard.state) visit(t);
      for (TensorId& t : shard.scales) visit(t);
    }
    StepIo& io = program.io;
    for (TensorId* t : {&io.source_ids, &io.source_lengths, &io.source_segments,
                        &io.target_segments, &io.token_losses, &io.target_ids, &io.labels, &io.step,
                        &io.learning_rate, &io.limits, &io.loss, &io.grad_norm, &io.micro_square}) {
      visit(*t);
    }
  };
  for_each_reference([&](TensorId& t) { use(t); });
  std::vector<TensorId> renamed(program.tensors.size(), kNone);
  std::vector<Tensor> kept;
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    if (!used[i]) continue;
    renamed[i] = static_cast<TensorId>(kept.size());
    kept.push_back(std::move(program.tensors[i]));
  }
  for (Tensor& t : kept) {
    if (t.base != kNone) t.base = renamed[index(t.base)];
    if (t.grad != kNone) t.grad = renamed[index(t.grad)];
  }
  program.tensors = std::move(kept);
  for_each_reference([&](TensorId& t) {
    if (t != kNone) t = renamed[index(t)];
  });
}

}  // namespace quintet
