#include "program/vjp.h"

#include <utility>

#include "base/check.h"

namespace quintet {

TensorId VjpContext::weight_grad(int i) const {
  const Tensor& weight = builder.program().tensor(in(i));
  QT_CHECK(weight.grad != kNone, "{} has no gradient tensor", weight.name);
  return weight.grad;
}

TensorId VjpContext::take_addend(int i) {
  const TensorId gathered = pending(in(i));
  if (gathered != kNone) pending_[static_cast<std::size_t>(in(i))] = kNone;
  return gathered;
}

void VjpContext::contribute(int i, TensorId grad) {
  const auto at = static_cast<std::size_t>(in(i));
  if (pending_.size() <= at) pending_.resize(at + 1, kNone);
  if (pending_[at] != kNone) {
    // The sum is arithmetic, whatever the op it belongs to.
    const Stream stream = std::exchange(builder.stream, Stream::kCompute);
    const Method method = std::exchange(builder.tag.method, Method::kCompute);
    grad = builder.emit_one(grad_name(i), OpKind::kAdd, NoAttrs{}, {pending_[at], grad});
    builder.stream = stream;
    builder.tag.method = method;
  }
  pending_[at] = grad;
}

std::string VjpContext::grad_name(int i) const {
  return "d." + builder.program().tensor(in(i)).name;
}

}  // namespace quintet
