#include "passes/schedule.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace quintet {
namespace {

// Whether a tensor stands for something of one micro-batch, so that each needs its own.
bool is_per_micro_batch(const Tensor& t) {
  return t.per_micro_batch || t.storage == Storage::kActivation || t.storage == Storage::kComm ||
         t.storage == Storage::kWorkspace;
}

class Scheduler {
 public:
  Scheduler(Program& program, std::int32_t count)
      : program_(program),
        count_(count),
        ops_(std::move(program.ops)),
        template_tensors_(program.tensors.size()) {
    program_.ops.clear();
    program_.micro_batches = count;
    once_.assign(template_tensors_, false);
    for (const Op& op : ops_) {
      if (op.tag.micro_batch >= 0) continue;
      for (const TensorId t : op.outputs) {
        if (t != kNone) once_[static_cast<std::size_t>(t)] = true;
      }
    }
  }

  void run() {
    split_io();
    emit(-1, Phase::kSetup);
    for (std::int32_t m = 0; m < count_; ++m) {
      renamed_.assign(template_tensors_, kNone);
      emit_micro_batch(m);
    }
    make_first_writers_overwrite();
  }

 private:
  // Grows every per-micro-batch io tensor to hold all of them; micro-batches see views of it.
  void split_io() {
    for (std::size_t i = 0; i < template_tensors_; ++i) {
      Tensor& t = program_.tensors[i];
      if (!t.per_micro_batch) continue;
      const Shape part = t.shape;
      Shape whole;
      whole.append(part[0] * count_);
      for (int dim = 1; dim < part.rank(); ++dim) whole.append(part[dim]);
      t.shape = whole;
      const std::int64_t part_bytes = part.numel() * size_of(t.dtype);
      const std::string name = t.name;
      std::vector<TensorId> views;
      for (std::int32_t m = 0; m < count_; ++m) {
        views.push_back(program_.add_view(fmt::format("{}@{}", name, m), static_cast<TensorId>(i),
                                          m * part_bytes, part));
      }
      io_views_.emplace_back(static_cast<TensorId>(i), std::move(views));
    }
  }

  TensorId instance(TensorId t, std::int32_t m) {
    if (t == kNone || m < 0) return t;
    const auto at = static_cast<std::size_t>(t);
    if (!is_per_micro_batch(program_.tensors[at]) || once_[at]) return t;
    if (program_.tensors[at].per_micro_batch) {
      for (const auto& [io, views] : io_views_) {
        if (io == t) return views[static_cast<std::size_t>(m)];
      }
    }
    if (count_ == 1) return t;  // the template's own tensors serve
    if (renamed_[at] == kNone) {
      Tensor copy = program_.tensors[at];
      QT_CHECK(copy.base == kNone, "{}: a view of an activation cannot be instantiated", copy.name);
      copy.name = fmt::format("{}@{}", copy.name, m);
      renamed_[at] = program_.add_tensor(std::move(copy));
    }
    return renamed_[at];
  }

  void emit_op(const Op& op, std::int32_t m) {
    Op copy = op;
    for (TensorId& t : copy.inputs) t = instance(t, m);
    for (TensorId& t : copy.outputs) t = instance(t, m);
    copy.tag.micro_batch = m;
    if (m >= 0) place_in_batch(copy, m);
    program_.ops.push_back(std::move(copy));
  }

  // Tells the ops that draw random masks which sequences of the global batch they work on.
  void place_in_batch(Op& op, std::int32_t m) const {
    if (auto* dropout = std::get_if<DropoutAttrs>(&op.attrs)) {
      const Shape& x = program_.tensor(op.inputs[dropout::kX]).shape;
      dropout->index.row_offset = first_sample(m, x[0]) * (x.rows() / x[0]);
    } else if (auto* attention = std::get_if<AttentionAttrs>(&op.attrs)) {
      const TensorId out = op.kind == OpKind::kAttention ? op.outputs[attention::kOut]
                                                         : op.inputs[attention_backward::kOut];
      attention->first_sample = first_sample(m, program_.tensor(out).shape[0]);
    }
  }
  // Micro-batch m of the step takes consecutive sequences, and of those each data-parallel rank its
  // share.
  std::int64_t first_sample(std::int32_t m, std::int64_t sequences) const {
    const Place& place = program_.place;
    return (std::int64_t{m} * place.dp_size + place.dp) * sequences;
  }
  void emit(std::int32_t m, Phase phase) {
    for (const Op& op : ops_) {
      if (op.tag.phase == phase) emit_op(op, m);
    }
  }
  void emit_micro_batch(std::int32_t m) {
    for (const Op& op : ops_) {
      if (op.tag.micro_batch >= 0) emit_op(op, m);
    }
  }

  // In the template every op that accumulates reads what it adds to. The first one of the step has
  // nothing to add to: its addend goes, and no buffer needs to be zeroed.
  void make_first_writers_overwrite() {
    std::vector<bool> written(program_.tensors.size(), false);
    for (Op& op : program_.ops) {
      for (const TensorId t : op.outputs) {
        if (t == kNone) continue;
        const auto at = static_cast<std::size_t>(t);
        if (!written[at]) std::replace(op.inputs.begin(), op.inputs.end(), t, kNone);
        written[at] = true;
      }
    }
  }

  Program& program_;
  const std::int32_t count_;
  const std::vector<Op> ops_;
  const std::size_t template_tensors_;
  std::vector<bool> once_;  // results of ops that run once a step
  std::vector<TensorId> renamed_;
  std::vector<std::pair<TensorId, std::vector<TensorId>>> io_views_;
};

}  // namespace

void schedule_micro_batches(Program& program, std::int32_t micro_batches) {
  QT_CHECK(micro_batches >= 1, "{} micro-batches", micro_batches);
  Scheduler(program, micro_batches).run();
}

}  // namespace quintet
