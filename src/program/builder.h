// Appends ops to a program, creating their results by the shape rule of each kind.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace quintet {

// In Op::outputs: make a new tensor for this result.
inline constexpr TensorId kCreate = -2;

class Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}

  // Stamped on every op emitted from now on.
  Tag tag;
  Stream stream = Stream::kCompute;

  // Appends an op; every kCreate among its outputs becomes a new activation named after `name`.
  // Returns the outputs. (The name by value: it may be that of a tensor, and tensors move.)
  std::vector<TensorId> emit(std::string name, OpKind kind, Attrs attrs,
                             std::vector<TensorId> inputs, std::vector<TensorId> outputs);
  // The same for an op with one result, which is created.
  TensorId emit_one(std::string name, OpKind kind, Attrs attrs, std::vector<TensorId> inputs) {
    return emit(std::move(name), kind, std::move(attrs), std::move(inputs), {kCreate}).front();
  }

  Program& program() { return program_; }

 private:
  Program& program_;
};

}  // namespace quintet
