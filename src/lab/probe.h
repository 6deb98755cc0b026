// Ops by themselves: a program whose ops do not depend on each other and share one piece of memory,
// so that each can be run alone, as often as one likes, by the executor that runs real steps.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"
#include "program/op_decl.h"
#include "program/program.h"
#include "runtime/backend.h"
#include "runtime/executor.h"

namespace quintet {

class Probe {
 public:
  explicit Probe(const Target& target) : backend_(make_backend(target)) {}

  // Adds an op of another program, with operands of its own; returns its copies, which differ in
  // where their operands lie: as many as it takes for one to find nothing in a cache of
  // `cache_bytes` when its turn comes again. Not for communication.
  std::vector<OpId> add(const Program& from, const Op& op, double cache_bytes);
  // Bytes that an op with so many copies would take.
  std::int64_t bytes() const { return arena_bytes(); }

  // Lays out the memory and makes an executor; operands hold random numbers. Nothing can be added
  // afterwards.
  Status start(World& world);
  Executor& executor() { return *executor_; }
  const Program& program() const { return program_; }

 private:
  std::int64_t arena_bytes() const;
  TensorId integers(const Program& from, const Op& op, int slot);
  void fill();

  struct Placed {
    TensorId tensor;
    std::int64_t at;  // bytes into its region
  };
  const std::unique_ptr<const Backend> backend_;
  Program program_;
  std::vector<Placed> read_, written_;  // regions: never written; written by ops
  std::map<std::tuple<DType, std::int64_t, std::int64_t>, TensorId>
      integers_;  // by type, size, bound
  std::int64_t integer_bytes_ = 0, read_bytes_ = 0, written_bytes_ = 0, scratch_bytes_ = 0,
               host_bytes_ = 0;
  std::vector<TensorId> scratch_;
  TensorId read_region_ = kNone;
  std::unique_ptr<Executor> executor_;
};

}  // namespace quintet
