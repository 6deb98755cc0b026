// What a CPU kernel gets, and the table of them. A kernel is a plain function of one op kind; it
// may use the OpenMP team through parallel_for, and allocates nothing.
#pragma once

#include <cstddef>

#include "parallel/communicator.h"
#include "program/program.h"
#include "runtime/cpu/scratch.h"
#include "runtime/memory.h"

namespace quintet::cpu {

// An op with its operands' addresses.
class OpContext : public OpView {
 public:
  OpContext(const Program& program, const Op& op, const Memory& memory, Communicator* group)
      : OpView{program, op}, memory_(memory), group_(group) {}

  // Null where the slot is empty.
  template <class T>
  const T* in_data(int i) const {
    return static_cast<const T*>(address(slot(op.inputs, i)));
  }
  template <class T>
  T* out_data(int i) const {
    return static_cast<T*>(address(slot(op.outputs, i)));
  }
  float* scratch() const { return static_cast<float*>(address(op.workspace)); }
  // The ranks an op of the compute stream talks to; null for all others.
  Communicator* group() const { return group_; }

 private:
  void* address(TensorId id) const { return id < 0 ? nullptr : memory_.at(program, id); }
  Memory memory_;
  Communicator* group_;
};

using Kernel = void (*)(const OpContext&);
// Null for communication, which the executor starts and finishes by itself.
Kernel kernel_of(OpKind kind);

}  // namespace quintet::cpu
