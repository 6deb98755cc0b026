// A program: everything one rank does in one training step, as data. The model and the passes write
// it; the executors, the dry run, the printer and the verifier read it. Nothing in it is decided at
// run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/op.h"
#include "program/tensor.h"

namespace quintet {

// One trained weight: the name and shape it has in a checkpoint, and its place in its unit.
struct Weight {
  std::string name;
  Shape shape;
  std::int64_t offset = 0;  // elements into the unit's flat tensors
  double init_std = 0;      // initial values are N(0, init_std); 0 means all ones
};

// Weights that are gathered, reduced and updated together: one layer, the embedding, the head. They
// lie side by side in one flat tensor, and so do their gradients.
struct Unit {
  std::string name;
  std::vector<Weight> weights;
  std::int64_t size = 0;  // elements of the flat tensors, padding included
  TensorId params = kNone, grads = kNone;
};

// The rank this program is for, by its coordinates in the grid of ranks.
struct Place {
  std::int32_t dp = 0, tp = 0, pp = 0;
  std::int32_t dp_size = 1, tp_size = 1, pp_size = 1;
};

// The tensors through which a step meets the host. The host writes the first group before a step
// and reads the second after it; kNone where a program has no such thing.
struct StepIo {
  TensorId source_ids = kNone;      // i32 [b, s], each micro-batch its own
  TensorId source_lengths = kNone;  // i32 [b], likewise; kNone when every sequence is full
  TensorId target_ids = kNone;      // i32 [b, t], the decoder's input
  TensorId labels = kNone;          // i32 [b, t], below zero: does not count
  TensorId step = kNone;            // i64 [1], from 1
  TensorId learning_rate = kNone;   // f32 [1]

  TensorId loss =
      kNone;  // f32 [2]: cross-entropy, z-loss; means over the counted labels of the step
  TensorId grad_norm = kNone;  // f32 [1], before clipping
};

struct Program {
  Place place;
  StepIo io;
  std::vector<Unit> units;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::int32_t micro_batches = 1;
  // Tensors that do not outlive a step by their class but are read after it: they keep their place
  // to its end.
  std::vector<TensorId> results;

  // Set by the memory plan.
  std::int64_t arena_bytes = 0;

  const Tensor& tensor(TensorId id) const { return tensors.at(static_cast<std::size_t>(id)); }
  Tensor& tensor(TensorId id) { return tensors.at(static_cast<std::size_t>(id)); }
  // The tensor that owns the storage: the base of a view, or the tensor itself.
  TensorId base_of(TensorId id) const {
    const TensorId base = tensor(id).base;
    return base == kNone ? id : base;
  }
  // Where a tensor's bytes are in the arena, after the memory plan.
  std::int64_t address_of(TensorId id) const {
    return tensor(base_of(id)).offset + tensor(id).base_offset;
  }
  TensorId add_tensor(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(tensors.size() - 1);
  }
  // A view of `shape` at `byte_offset` of a tensor.
  TensorId add_view(std::string name, TensorId of, std::int64_t byte_offset, Shape shape);
  // The tensor of that name, or kNone. Linear in the number of tensors: for set-up and tests.
  TensorId find(std::string_view name) const;
};

// An op with the program around it: how declarations and kernels look at one.
struct OpView {
  const Program& program;
  const Op& op;

  bool has_in(int i) const { return slot(op.inputs, i) >= 0; }
  bool has_out(int i) const { return slot(op.outputs, i) >= 0; }
  const Tensor& in(int i) const { return program.tensor(slot(op.inputs, i)); }
  const Tensor& out(int i) const { return program.tensor(slot(op.outputs, i)); }
  template <class T>
  const T& attrs() const {
    return std::get<T>(op.attrs);
  }
  static TensorId slot(const std::vector<TensorId>& slots, int i) {
    return static_cast<std::size_t>(i) < slots.size() ? slots[static_cast<std::size_t>(i)] : kNone;
  }
};

}  // namespace quintet
