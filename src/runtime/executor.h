// Runs a program, step after step, on one device. Storage is one arena of exactly
// Program::arena_bytes, allocated once; a step allocates nothing and decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"
#include "program/op_decl.h"
#include "program/program.h"

namespace quintet {

// When an op ran, in seconds since its step began, and how long the rank stood still before it.
struct OpTiming {
  double start = 0, end = 0;
  double blocked = 0;    // waiting for another op to finish before this one could start
  OpId blocked_by = -1;  // the last of them
  double talking = 0;    // of the rank's own time in this op, spent on communication
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Copies bytes into or out of a tensor, `offset` bytes from its start. Not while a step runs. The
  // host writes parameters, optimizer state and io before the first step; everything else is the
  // program's.
  virtual void write(TensorId tensor, std::int64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read(TensorId tensor, std::int64_t offset, std::span<std::byte> bytes) const = 0;

  // Executes the program once.
  virtual Status run() = 0;
  // What the last run spent its time on, by op, and when it began, on the steady clock.
  virtual std::span<const OpTiming> timings() const = 0;
  virtual double began() const = 0;
  // Bytes this rank sent in all runs so far, by op.
  virtual std::vector<std::int64_t> bytes_sent() const = 0;

  // What the arena really takes, for comparison with the plan; and how much of it the system has
  // given so far, which is all of it once a step has run.
  virtual std::int64_t arena_bytes() const = 0;
  virtual std::int64_t resident_bytes() const = 0;
  virtual const Program& program() const = 0;

  // Typed convenience for whole small tensors.
  template <class T>
  void write_all(TensorId tensor, std::span<const T> values) {
    write(tensor, 0, std::as_bytes(values));
  }
  template <class T>
  std::vector<T> read_all(TensorId tensor) const {
    std::vector<T> values(static_cast<std::size_t>(program().tensor(tensor).shape.numel()));
    read(tensor, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
};

// The program must be planned for `target` and must outlive the executor, as must the world. Called
// by all ranks of the world together. Fails when the device has not enough free memory, before
// anything is allocated.
Result<std::unique_ptr<Executor>> make_cpu_executor(const Program& program, const Target& target,
                                                    World& world);

}  // namespace quintet
