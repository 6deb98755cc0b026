#include "program/builder.h"

#include "base/check.h"
#include "program/op_decl.h"

namespace quintet {

std::vector<TensorId> Builder::emit(std::string name, OpKind kind, Attrs attrs,
                                    std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
  Op op;
  op.kind = kind;
  op.attrs = std::move(attrs);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.tag = tag;
  op.stream = stream;
  const OpDecl& decl = declaration(op.kind);
  const std::vector<TensorSpec> specs = decl.infer({program_, op});
  QT_CHECK(op.outputs.size() <= specs.size(), "{} has {} results, {} asked for", decl.name,
           specs.size(), op.outputs.size());
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (op.outputs[i] != kCreate) continue;
    Tensor result;
    const TensorId named_after = specs[i].named_after;
    result.name = named_after == kNone ? name : program_.tensor(named_after).name;
    if (!specs[i].suffix.empty()) result.name += "." + std::string(specs[i].suffix);
    result.shape = specs[i].shape;
    result.dtype = specs[i].dtype;
    op.outputs[i] = program_.add_tensor(std::move(result));
  }
  program_.ops.push_back(std::move(op));
  return program_.ops.back().outputs;
}

}  // namespace quintet
