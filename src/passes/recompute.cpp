#include "passes/recompute.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "program/op_decl.h"

namespace quintet {
namespace {

// Bytes not worth running anything again for.
constexpr std::int64_t kTooSmall = 64;

class Recomputer {
 public:
  Recomputer(Program& program, Recompute mode) : program_(program), mode_(mode) {
    producer_.assign(program.tensors.size(), -1);
    leaves_unit_.assign(program.tensors.size(), false);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      if (op.tag.phase != Phase::kForward) continue;
      for (const TensorId t : op.inputs) {
        if (t == kNone || producer_[index(t)] < 0) continue;
        const Op& from = program.ops[index(producer_[index(t)])];
        if (from.tag.unit != op.tag.unit) leaves_unit_[index(t)] = true;
      }
      for (const TensorId t : op.outputs) {
        if (t != kNone) producer_[index(t)] = static_cast<OpId>(i);
      }
    }
    // An op that has to keep one result has nothing to run again for: it keeps all.
    for (const Op& op : program.ops) {
      const bool kept = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId t) {
        return t != kNone && leaves_unit_[index(t)];
      });
      for (const TensorId t : op.outputs)
        if (kept && t != kNone) leaves_unit_[index(t)] = true;
    }
  }

  void run() {
    original_ = std::exchange(program_.ops, {});
    program_.ops.reserve(original_.size());
    for (Op op : original_) {
      if (op.tag.phase == Phase::kBackward) {
        for (TensorId& t : op.inputs) t = redone(t);
      }
      program_.ops.push_back(std::move(op));
    }
  }

 private:
  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

  bool dropped(TensorId t) const {
    // Tensors made by this pass have ids past the table; they are results already redone.
    if (t == kNone || index(t) >= producer_.size() || producer_[index(t)] < 0) return false;
    if (leaves_unit_[index(t)] || program_.tensor(t).bytes() <= kTooSmall) return false;
    const Redo redo = declaration(original_[index(producer_[index(t)])].kind).redo;
    return mode_ == Recompute::kFull ? redo != Redo::kNever : redo == Redo::kCheap;
  }

  // The tensor to read instead of `t` in the backward: `t` itself if it was kept, else the result
  // of running its producer again, which is emitted here unless that has happened already.
  TensorId redone(TensorId t) {
    if (!dropped(t)) return t;
    if (replacement_.size() <= index(t)) replacement_.resize(producer_.size(), kNone);
    if (replacement_[index(t)] != kNone) return replacement_[index(t)];

    Op again = original_[index(producer_[index(t)])];
    const std::vector<TensorId> results = again.outputs;
    for (TensorId& input : again.inputs) input = redone(input);
    for (TensorId& output : again.outputs) {
      if (output == kNone) continue;
      Tensor copy = program_.tensor(output);
      copy.name += "'";
      output = program_.add_tensor(std::move(copy));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i] != kNone) replacement_[index(results[i])] = again.outputs[i];
    }
    again.tag.phase = Phase::kRecompute;
    program_.ops.push_back(std::move(again));
    return replacement_[index(t)];
  }

  Program& program_;
  const Recompute mode_;
  std::vector<Op> original_;       // of the program as it came
  std::vector<OpId> producer_;     // the forward op that made a tensor, -1 if none did
  std::vector<bool> leaves_unit_;  // read by the forward of another unit: always kept
  std::vector<TensorId> replacement_;
};

}  // namespace

Result<Recompute> parse_recompute(std::string_view name) {
  if (name == "none") return Recompute::kNone;
  if (name == "selective") return Recompute::kSelective;
  if (name == "full") return Recompute::kFull;
  return usage_error("recompute = \"{}\": expected none, selective or full", name);
}

void recompute(Program& program, Recompute mode) {
  if (mode != Recompute::kNone) Recomputer(program, mode).run();
}

}  // namespace quintet
