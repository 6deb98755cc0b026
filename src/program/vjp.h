// What an op kind's gradient rule sees and may do. The autodiff pass makes one for each forward op,
// in reverse order.
#pragma once

#include <string>
#include <vector>

#include "program/builder.h"
#include "program/program.h"

namespace quintet {

class VjpContext {
 public:
  // `pending[t]` is the gradient gathered so far for tensor t, kNone if none.
  VjpContext(Builder& builder, Op forward, std::vector<TensorId>& pending)
      : builder(builder), forward(std::move(forward)), pending_(pending) {}

  Builder& builder;
  const Op forward;

  TensorId in(int i) const { return OpView::slot(forward.inputs, i); }
  TensorId out(int i) const { return OpView::slot(forward.outputs, i); }
  // The gradient that reached result i; kNone when nothing downstream used it.
  TensorId d_out(int i) const { return pending(out(i)); }

  // Where the gradient of weight input i is accumulated. An op that computes it names this tensor
  // both as an addend input and as the output.
  TensorId weight_grad(int i) const;

  // The gradient gathered so far for activation input i, handed over to an op that will add it to
  // its own contribution; kNone when there is none. Follow with contribute().
  TensorId take_addend(int i);
  // Adds a gradient for activation input i.
  void contribute(int i, TensorId grad);
  // A name for the gradient of input i.
  std::string grad_name(int i) const;

 private:
  TensorId pending(TensorId id) const {
    return id == kNone || static_cast<std::size_t>(id) >= pending_.size()
               ? kNone
               : pending_[static_cast<std::size_t>(id)];
  }
  std::vector<TensorId>& pending_;
};

}  // namespace quintet
