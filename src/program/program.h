// A program: everything one rank does in one training step, as data. The model and the passes write
// it; the executors, the dry run, the printer and the verifier read it. Nothing in it is decided at
// run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/op.h"
#include "program/target.h"
#include "program/tensor.h"

namespace quintet {

// One trained weight: the name and shape it has in a checkpoint, the part of it that this rank
// computes with, and that part's place in its unit. A vector is seen as a matrix of one row.
struct Weight {
  std::string name;
  Shape shape;          // of the whole weight
  double init_std = 0;  // initial values are N(0, init_std); 0: all are init_value
  double init_value = 1;
  // What the model's width makes of it (model/width.h): a factor of its learning rate, and its
  // initial size relative to that at the base width.
  double rate_scale = 1, relative_size = 1;

  // Rows [row0, row0 + rows) and columns [col0, col0 + cols) of the whole.
  std::int64_t row0 = 0, rows = 0, col0 = 0, cols = 0;
  std::int64_t stored_rows = 0;  // rows, or more where all ranks of a group must have equally many
  bool split = false;            // over the tensor-parallel ranks; else each of them has it whole

  std::int64_t offset = 0;  // elements into the unit's flat tensors
  std::int64_t size() const { return stored_rows * cols; }
};

// Weights that are gathered, reduced and updated together: one layer, the embedding, the head. They
// lie side by side in one flat tensor, and so do their gradients. A unit also stands for the ops
// that compute with it; some have ops and no weights, some weights and no ops.
struct Unit {
  std::string name;
  std::vector<Weight> weights;
  std::int64_t size = 0;  // elements of the flat tensors, padding included
  TensorId params = kNone, grads = kNone;
  std::int32_t chunk = 0;  // the piece of the pipeline its ops belong to
  std::vector<std::int32_t>
      stages;  // pipeline stages that have its weights; more than one share them
};

// A run of elements of one weight (of the part this rank stores) inside a shard.
struct ShardPiece {
  std::int32_t unit = 0, weight = 0;
  std::int64_t first = 0, count = 0;  // elements of the stored part
  std::int64_t offset = 0;            // elements into the shard
  bool counted = true;  // in the gradient's norm: of all ranks with this piece, one counts it
};

// What this rank updates: a flat range of parameters with its gradient and its optimizer state.
// Which elements of which weights it is made of is data, read by the optimizer, by checkpoints and
// by reports.
struct Shard {
  std::string name;
  std::int64_t size = 0;  // elements
  TensorId grad = kNone;
  TensorId working = kNone;     // what the update writes for the next forward
  TensorId master = kNone;      // float32; the working copy itself in fp32
  std::vector<TensorId> state;  // moments and the like
  // Of state in codes of eight bits (base/moments.h), by its place in `state`: a float32 for each
  // block. The blocks of each piece begin with it (program/shards.h).
  std::vector<TensorId> scales;
  TensorId ema = kNone;  // a running mean of the weights, float32, where one is kept
  std::vector<ShardPiece> pieces;
  std::int32_t group = -1;  // ranks that together hold each weight once; -1: this rank alone does

  std::vector<ShardPiece> whole_pieces;  // of the bucket this is a part of, over all its parts
  // Where parameters are kept whole though each rank updates only its part: the whole, and the
  // ranks among which the parts are gathered after the update.
  TensorId whole = kNone;
  std::int32_t gather_group = -1;
};

// Ranks that communicate, by world rank, and this rank's position among them.
struct Group {
  std::string name;
  std::vector<std::int32_t> ranks;
  std::int32_t index = 0;
};

// The rank this program is for, by its coordinates in the grid of ranks.
struct Place {
  std::int32_t dp = 0, tp = 0, pp = 0;
  std::int32_t dp_size = 1, tp_size = 1, pp_size = 1;
  std::int32_t rank = 0;  // in the world
};

// The tensors through which a step meets the host. The host writes the first group before a step
// and reads the second after it; kNone where a program has no such thing.
struct StepIo {
  TensorId source_ids = kNone;      // i32 [b, s], each micro-batch its own
  TensorId source_lengths = kNone;  // i32 [b], likewise; kNone when every sequence is full
  TensorId target_ids = kNone;      // i32 [b, t], the decoder's input
  TensorId source_segments = kNone, target_segments = kNone;  // i32 [b, s], [b, t]; of packed rows
  TensorId labels = kNone;         // i32 [b, t], below zero: does not count
  TensorId step = kNone;           // i64 [1], from 1
  TensorId learning_rate = kNone;  // f32 [1]
  TensorId limits = kNone;         // f32 [2]: loss and gradient norm above which nothing is updated

  TensorId loss =
      kNone;  // f32 [2]: cross-entropy, z-loss; means over the counted labels of the step
  TensorId grad_norm = kNone;  // f32 [1], before clipping
  // f32 [1]: the squared norm of what the first micro-batch adds to the gradient, summed over the
  // data-parallel ranks; where it is measured
  TensorId micro_square = kNone;
  TensorId token_losses = kNone;  // f32 [b, t], each micro-batch its own; of validation
};

struct Program {
  Place place;
  StepIo io;
  std::vector<Group> groups;
  std::vector<Unit> units;
  std::vector<Shard> shards;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::int32_t micro_batches = 1;
  // Tensors that do not outlive a step by their class but are read after it: they keep their place
  // to its end.
  std::vector<TensorId> results;

  // Set by the memory plan.
  Target target;
  std::int64_t arena_bytes = 0;
  std::int64_t host_bytes = 0;  // beside it, in host memory

  const Tensor& tensor(TensorId id) const { return tensors.at(static_cast<std::size_t>(id)); }
  Tensor& tensor(TensorId id) { return tensors.at(static_cast<std::size_t>(id)); }
  // The tensor that owns the storage: the base of a view, or the tensor itself.
  TensorId base_of(TensorId id) const {
    const TensorId base = tensor(id).base;
    return base == kNone ? id : base;
  }
  // Where a tensor's bytes are in the arena or in host memory, after the memory plan.
  std::int64_t address_of(TensorId id) const {
    return tensor(base_of(id)).offset + tensor(id).base_offset;
  }
  TensorId add_tensor(Tensor tensor) {
    tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(tensors.size() - 1);
  }
  // A view of `shape` at `byte_offset` of a tensor.
  TensorId add_view(std::string name, TensorId of, std::int64_t byte_offset, Shape shape);
  // The group of these ranks, added if it is not there yet; -1 for this rank alone.
  std::int32_t group_of(const std::string& name, const std::vector<std::int32_t>& ranks);
  // The tensor of that name, or kNone. Linear in the number of tensors: for set-up and tests.
  TensorId find(std::string_view name) const;
  // The op that makes a tensor, null if none does. Linear in the number of ops, from the last on.
  const Op* producer(TensorId tensor) const;
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
