#include "passes/autodiff.h"

#include "program/op_decl.h"
#include "program/vjp.h"

namespace quintet {

void autodiff(Program& program) {
  Builder builder(program);
  std::vector<TensorId> pending;  // gradient gathered so far, by tensor
  const auto forward_ops = static_cast<std::ptrdiff_t>(program.ops.size());
  for (std::ptrdiff_t i = forward_ops - 1; i >= 0; --i) {
    const Op op = program.ops[static_cast<std::size_t>(i)];  // a copy: emitting grows the list
    const OpDecl& decl = declaration(op.kind);
    if (decl.vjp == nullptr) continue;
    builder.tag = op.tag;
    builder.stream = op.stream;
    builder.tag.phase = Phase::kBackward;
    VjpContext context(builder, op, pending);
    decl.vjp(context);
  }
}

}  // namespace quintet
