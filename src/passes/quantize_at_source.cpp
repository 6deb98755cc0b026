#include "passes/quantize_at_source.h"

#include <utility>
#include <vector>

#include "base/index.h"
#include "program/op_decl.h"

namespace quintet {
namespace {

class SourceFinder {
 public:
  explicit SourceFinder(const Program& program)
      : program_(program), producer_(program.tensors.size(), -1), readers_(program.tensors.size()) {
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      for (const TensorId t : program.ops[i].inputs)
        if (t != kNone) ++readers_[index(t)];
      for (const TensorId t : program.ops[i].outputs)
        if (t != kNone) producer_[index(t)] = static_cast<OpId>(i);
    }
    for (const TensorId t : program.results) ++readers_[index(t)];
    for (const Tensor& t : program.tensors)
      if (t.base != kNone) ++readers_[index(t.base)];
  }

  bool is_read(TensorId t) const { return readers_[index(t)] > 0; }

  // The op that could leave the codes which this op makes of its result, for nobody else reads
  // that; -1 if there is none.
  OpId source_of(const Op& op) const {
    if (op.kind != OpKind::kQuantize || OpView{program_, op}.has_in(quantize::kKnownUnit))
      return -1;
    const TensorId x = op.inputs[quantize::kX];
    const OpId id = producer_[index(x)];
    if (id < 0 || readers_[index(x)] != 1) return -1;
    const Op& source = program_.ops[index(id)];
    const quantize::AtSource* slots = quantize::at_source(source.kind);
    if (slots == nullptr || OpView::slot(source.outputs, slots->result) != x) return -1;
    // Else the codes would wait for their reader, or for the pipeline to bring them.
    if (source.tag.phase != op.tag.phase || source.tag.unit != op.tag.unit) return -1;
    const TensorId largest = OpView::slot(source.outputs, slots->largest);
    const bool only_here =
        largest == kNone ||
        (readers_[index(largest)] == 1 && OpView::slot(op.inputs, quantize::kLargest) == largest);
    return only_here ? id : -1;
  }

 private:
  const Program& program_;
  std::vector<OpId> producer_;
  std::vector<int> readers_;
};

// Lets `source` leave what `op` makes.
void leave_codes(Program& program, Op& source, const Op& op) {
  const quantize::AtSource& slots = *quantize::at_source(source.kind);
  const TensorId guess =
      program.add_tensor(Tensor{program.tensor(op.inputs[quantize::kX]).name + ".guess",
                                Shape{quantize::kGuessWords}, DType::kI32, Storage::kCache});
  source.inputs.resize(index(slots.guess), kNone);
  source.inputs.push_back(guess);
  source.outputs.resize(index(slots.codes), kNone);
  source.outputs[index(slots.result)] = source.outputs[index(slots.largest)] = kNone;
  for (const int slot : {quantize::kCodes, quantize::kTransposed, quantize::kUnit})
    source.outputs.push_back(OpView::slot(op.outputs, slot));
  source.outputs.push_back(guess);
}

}  // namespace

void quantize_at_source(Program& program) {
  const SourceFinder finder(program);
  std::vector<Op> ops;
  std::vector<std::size_t> place(program.ops.size());  // in the new list
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    if (op.kind == OpKind::kQuantize) {  // where it is run again, part of its results may do
      for (const int slot : {quantize::kCodes, quantize::kTransposed}) {
        const TensorId t = OpView::slot(op.outputs, slot);
        if (t != kNone && !finder.is_read(t)) op.outputs[index(slot)] = kNone;
      }
    }
    if (const OpId source = finder.source_of(op); source >= 0) {
      leave_codes(program, ops[place[index(source)]], op);
      continue;
    }
    place[i] = ops.size();
    ops.push_back(op);
  }
  program.ops = std::move(ops);
}

}  // namespace quintet
