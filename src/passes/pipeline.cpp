#include "passes/pipeline.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/index.h"
#include "program/builder.h"

namespace quintet {
namespace {

// Whether a tensor stands for something of one micro-batch, so that each needs its own.
bool is_per_micro_batch(const Tensor& t) {
  return t.per_micro_batch || t.storage == Storage::kActivation;
}

// A value that leaves the piece of the model it was made in, and the pieces it passes through.
struct Crossing {
  TensorId tensor = kNone;  // of the template
  bool forward = true;
  std::int32_t from = 0, to = 0;  // pieces; to > from on the way forward, to < from on the way back
  std::int32_t number = 0;        // the same on all ranks: part of the message's tag
  // Whether the value travels over the border between piece c and the next one along its way.
  bool leaves(std::int32_t c) const { return forward ? c >= from && c < to : c <= from && c > to; }
  bool enters(std::int32_t c) const { return forward ? c > from && c <= to : c < from && c >= to; }
};

class Pipeliner {
 public:
  Pipeliner(Program& program, const Grid& grid, const std::vector<PipelineAction>& order,
            std::int32_t micro_batches)
      : program_(program),
        grid_(grid),
        order_(order),
        micro_batches_(micro_batches),
        template_(std::move(program.ops)),
        template_tensors_(program.tensors.size()),
        once_(program.tensors.size(), false) {
    program_.ops.clear();
    program_.micro_batches = micro_batches;
    for (const Op& op : template_) {
      last_chunk_ = std::max(last_chunk_, chunk_of(op));
      if (op.tag.micro_batch >= 0) continue;
      for (const TensorId t : op.outputs) {
        if (t != kNone) once_[index(t)] = true;
      }
    }
  }

  void run() {
    note_stages_of_units();
    find_crossings();
    split_io();
    emit_setup();
    std::vector<std::vector<OpId>> sends(order_.size());
    receive(0);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (i + 1 < order_.size()) receive(i + 1);  // on its way while this action computes
      const std::size_t first = program_.ops.size();
      emit_action(order_[i]);
      // What was sent two actions ago must be gone before its memory is used again.
      if (i >= 2) wait_for(sends[i - 2], first);
      sends[i] = send(order_[i]);
    }
    forget_what_other_stages_have();
  }

 private:
  std::int32_t chunk_of(const Op& op) const {
    return op.tag.unit < 0 ? last_chunk_ : program_.units[index(op.tag.unit)].chunk;
  }
  std::int32_t stage_of(std::int32_t chunk) const { return chunk % grid_.pp; }

  // Which stages have which weights: those whose ops read them or add to their gradients.
  void note_stages_of_units() {
    std::map<TensorId, std::size_t> unit_of;
    for (std::size_t u = 0; u < program_.units.size(); ++u) {
      if (program_.units[u].params == kNone) continue;
      unit_of[program_.units[u].params] = u;
      if (program_.units[u].grads != kNone) unit_of[program_.units[u].grads] = u;
    }
    for (const Op& op : template_) {
      for (const auto* slots : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *slots) {
          if (t == kNone) continue;
          const auto unit = unit_of.find(program_.base_of(t));
          if (unit == unit_of.end()) continue;
          auto& stages = program_.units[unit->second].stages;
          const std::int32_t stage = stage_of(chunk_of(op));
          if (std::find(stages.begin(), stages.end(), stage) == stages.end())
            stages.push_back(stage);
        }
      }
    }
    for (Unit& unit : program_.units) std::sort(unit.stages.begin(), unit.stages.end());
  }

  void find_crossings() {
    std::vector<std::int32_t> made_in(template_tensors_, -1);
    std::vector<bool> made_forward(template_tensors_, true);
    std::map<TensorId, Crossing> found;
    for (const Op& op : template_) {
      const std::int32_t chunk = chunk_of(op);
      for (const TensorId t : op.inputs) {
        if (t == kNone || made_in[index(t)] < 0 || made_in[index(t)] == chunk || once_[index(t)])
          continue;
        if (!is_per_micro_batch(program_.tensor(t))) continue;
        Crossing& c = found[t];
        if (c.tensor == kNone)
          c = {t, made_forward[index(t)], made_in[index(t)], made_in[index(t)]};
        c.to = c.forward ? std::max(c.to, chunk) : std::min(c.to, chunk);
      }
      for (const TensorId t : op.outputs) {
        if (t == kNone || made_in[index(t)] >= 0) continue;
        made_in[index(t)] = chunk;
        made_forward[index(t)] = op.tag.phase == Phase::kForward;
      }
    }
    for (auto& [tensor, crossing] : found) {
      crossing.number = static_cast<std::int32_t>(crossings_.size());
      crossings_.push_back(crossing);
    }
  }

  // Grows every per-micro-batch io tensor to hold all of them; micro-batches see views of it.
  void split_io() {
    for (std::size_t i = 0; i < template_tensors_; ++i) {
      if (!program_.tensors[i].per_micro_batch) continue;
      const Shape part = program_.tensors[i].shape;
      Shape whole;
      whole.append(part[0] * micro_batches_);
      for (int dim = 1; dim < part.rank(); ++dim) whole.append(part[dim]);
      program_.tensors[i].shape = whole;
      const std::int64_t part_bytes = part.numel() * size_of(program_.tensors[i].dtype);
      const std::string name = program_.tensors[i].name;
      auto& views = io_views_[static_cast<TensorId>(i)];
      for (std::int32_t m = 0; m < micro_batches_; ++m) {
        views.push_back(program_.add_view(fmt::format("{}@{}", name, m), static_cast<TensorId>(i),
                                          m * part_bytes, part));
      }
    }
  }

  // The tensor that stands for template tensor t in micro-batch m on this stage's piece `chunk`.
  // Pieces share what they made, but each has its own copy of what it received.
  TensorId instance(TensorId t, std::int32_t chunk, std::int32_t m) {
    if (t == kNone || m < 0 || once_[index(t)] || !is_per_micro_batch(program_.tensor(t))) return t;
    if (const auto io = io_views_.find(t); io != io_views_.end()) return io->second[index(m)];
    const std::int32_t copy = received_by(t, chunk) ? chunk : -1;
    const auto [at, is_new] = instances_.try_emplace({t, copy, m}, kNone);
    if (is_new) {
      Tensor made = program_.tensor(t);
      QT_CHECK(made.base == kNone, "{}: a view of an activation cannot be instantiated", made.name);
      if (micro_batches_ > 1) made.name += fmt::format("@{}", m);
      at->second = program_.add_tensor(std::move(made));
    }
    return at->second;
  }
  bool received_by(TensorId t, std::int32_t chunk) const {
    for (const Crossing& c : crossings_) {
      if (c.tensor == t) return c.enters(chunk);
    }
    return false;
  }

  void emit_op(const Op& op, std::int32_t chunk, std::int32_t m) {
    Op copy = op;
    for (TensorId& t : copy.inputs) t = instance(t, chunk, m);
    for (TensorId& t : copy.outputs) t = instance(t, chunk, m);
    copy.tag.micro_batch = m;
    if (m >= 0) place_in_batch(copy, m);
    program_.ops.push_back(std::move(copy));
  }

  void emit_setup() {
    for (const Op& op : template_) {
      if (op.tag.phase == Phase::kSetup && stage_of(last_chunk_) == program_.place.pp)
        emit_op(op, last_chunk_, -1);
    }
  }

  void emit_action(const PipelineAction& action) {
    for (const Op& op : template_) {
      if (op.tag.micro_batch < 0 || chunk_of(op) != action.chunk) continue;
      if ((op.tag.phase == Phase::kForward) == action.forward) {
        emit_op(op, action.chunk, action.micro_batch);
      }
    }
  }

  // Makes the first compute op from `first` on wait for some ops.
  void wait_for(const std::vector<OpId>& ops, std::size_t first) {
    while (first < program_.ops.size() && program_.ops[first].stream != Stream::kCompute) ++first;
    if (first == program_.ops.size()) return;
    auto& waits = program_.ops[first].waits;
    waits.insert(waits.end(), ops.begin(), ops.end());
  }

  // Tells the ops that draw random masks which sequences of the global batch they work on.
  void place_in_batch(Op& op, std::int32_t m) const {
    if (auto* dropout = std::get_if<DropoutAttrs>(&op.attrs)) {
      dropout->index.row_offset += share_of_batch(m) * dropout->index.rows;
    } else if (auto* attention = std::get_if<AttentionAttrs>(&op.attrs)) {
      const TensorId out = op.kind == OpKind::kAttention ? op.outputs[attention::kOut]
                                                         : op.inputs[attention_backward::kOut];
      attention->first_sample = share_of_batch(m) * program_.tensor(out).shape[0];
    }
  }
  // The global batch is cut into equal shares: micro-batch m takes consecutive ones, of which each
  // data-parallel rank gets one.
  std::int64_t share_of_batch(std::int32_t m) const {
    return std::int64_t{m} * program_.place.dp_size + program_.place.dp;
  }

  OpId transfer(OpKind kind, const Crossing& c, std::int32_t chunk, std::int32_t peer_chunk,
                std::int32_t m) {
    const TensorId local = instance(c.tensor, chunk, m);
    const Place& place = program_.place;
    TransferAttrs attrs;
    attrs.peer = grid_.rank_of(place.dp, place.tp, stage_of(peer_chunk));
    // The same message may pass between two ranks for several pieces: the receiving piece tells
    // them apart.
    const std::int32_t receiver = kind == OpKind::kRecv ? chunk : peer_chunk;
    attrs.tag = (c.number * (last_chunk_ + 1) + receiver) * micro_batches_ + m;
    attrs.shape = program_.tensor(local).shape;
    attrs.dtype = program_.tensor(local).dtype;
    Op op;
    op.kind = kind;
    op.attrs = attrs;
    (kind == OpKind::kSend ? op.inputs : op.outputs) = {local};
    if (kind == OpKind::kSend) {
      op.stream = c.forward ? Stream::kSendForward : Stream::kSendBackward;
    } else {
      op.stream = c.forward ? Stream::kRecvForward : Stream::kRecvBackward;
    }
    op.tag = Tag{.phase = c.forward ? Phase::kForward : Phase::kBackward,
                 .method = Method::kPipeline,
                 .unit = -1,
                 .micro_batch = m};
    program_.ops.push_back(std::move(op));
    return static_cast<OpId>(program_.ops.size() - 1);
  }

  // Posts the receives of an action, ordered after what has been computed so far: before that,
  // their memory is used for something else.
  void receive(std::size_t action) {
    const PipelineAction& a = order_[action];
    OpId last_compute = static_cast<OpId>(program_.ops.size()) - 1;
    while (last_compute >= 0 && program_.ops[index(last_compute)].stream != Stream::kCompute)
      --last_compute;
    for (const Crossing& c : crossings_) {
      if (c.forward != a.forward || !c.enters(a.chunk)) continue;
      const OpId op =
          transfer(OpKind::kRecv, c, a.chunk, c.forward ? a.chunk - 1 : a.chunk + 1, a.micro_batch);
      if (last_compute >= 0) program_.ops[index(op)].waits.push_back(last_compute);
    }
  }

  std::vector<OpId> send(const PipelineAction& a) {
    std::vector<OpId> sent;
    for (const Crossing& c : crossings_) {
      if (c.forward != a.forward || !c.leaves(a.chunk)) continue;
      sent.push_back(transfer(OpKind::kSend, c, a.chunk, c.forward ? a.chunk + 1 : a.chunk - 1,
                              a.micro_batch));
    }
    return sent;
  }

  // Units whose weights no op here uses, and io that no op here reads, belong to other stages.
  void forget_what_other_stages_have() {
    std::vector<bool> used(program_.tensors.size(), false);
    for (const Op& op : program_.ops) {
      for (const auto* slots : {&op.inputs, &op.outputs}) {
        for (const TensorId t : *slots) {
          if (t != kNone) used[index(program_.base_of(t))] = true;
        }
      }
    }
    for (Unit& unit : program_.units) {
      if (unit.params == kNone || used[index(unit.params)]) continue;
      if (unit.grads != kNone && used[index(unit.grads)]) continue;
      unit.params = unit.grads = kNone;
      unit.weights.clear();
      unit.size = 0;
    }
    StepIo& io = program_.io;
    for (TensorId* t : {&io.source_ids, &io.source_lengths, &io.source_segments,
                        &io.target_segments, &io.target_ids, &io.labels, &io.token_losses}) {
      if (*t != kNone && !used[index(*t)]) *t = kNone;
    }
  }

  Program& program_;
  const Grid& grid_;
  const std::vector<PipelineAction>& order_;
  const std::int32_t micro_batches_;
  const std::vector<Op> template_;
  const std::size_t template_tensors_;
  std::vector<bool> once_;  // results of ops that run once a step
  std::int32_t last_chunk_ = 0;
  std::vector<Crossing> crossings_;
  std::map<TensorId, std::vector<TensorId>> io_views_;
  std::map<std::tuple<TensorId, std::int32_t, std::int32_t>, TensorId> instances_;
};

}  // namespace

void pipeline(Program& program, const Grid& grid, const std::vector<PipelineAction>& order,
              std::int32_t micro_batches) {
  QT_CHECK(micro_batches >= 1, "{} micro-batches", micro_batches);
  Pipeliner(program, grid, order, micro_batches).run();
}

}  // namespace quintet
