// Stage 3 of ZeRO where products take operands of eight bits: of a layer's matrices nothing is read
// but codes, and codes can be made before the gather instead of after it, each by the rank that has
// the weight. Half the bytes travel, and the codes are the same to the bit: the ranks agree on each
// matrix's unit first, once a step. What else is read of a layer, its norms, is little, and they
// tell each other at that time, too.
#pragma once

#include <map>
#include <vector>

#include "passes/buckets.h"
#include "passes/rewriter.h"
#include "program/program.h"

namespace quintet {

class CodedWeights {
 public:
  // `group`: the ranks that have the parts of buckets, this one the `part`-th. Whoever reads a
  // sharded bucket with such matrices reads their codes from now on, and of the rest a copy: ops
  // that only made codes are gone, and those that turn matrices for the backward turn codes.
  CodedWeights(Program& program, Rewriter& rewriter, const std::vector<Bucket>& buckets,
               std::int32_t group, std::int32_t part);

  // What is read of a bucket instead of its parameters: a tensor of its size that no op makes yet;
  // kNone if the parameters are read.
  TensorId codes(const Bucket& bucket) const;

  // Inserts what ranks agree on, at the beginning of the step. `shards`: one for each bucket.
  void agree(const std::vector<Bucket>& buckets, const std::vector<Shard>& shards);

  // Inserts what makes the codes of this rank's part, and returns them.
  TensorId insert_codes(const Bucket& bucket, const Shard& shard, std::size_t position, Tag tag);

 private:
  // Neighbouring elements of a bucket that are read as one tensor, and what is agreed on about
  // them: of a matrix the unit, of others the values.
  struct Run {
    std::int64_t size = 0;
    TensorId agreed = kNone;
  };
  using Runs = std::map<std::int64_t, Run>;  // by their first element
  struct Coded {
    TensorId codes = kNone;
    Runs matrices, others;
  };
  // What this rank's part of a bucket has of a run.
  struct Piece {
    TensorId agreed;
    std::int64_t in_part, in_run, size;
  };

  bool makes_codes(const Op& op) const;
  std::int64_t first_element(TensorId view) const;
  void find_runs(const std::vector<Bucket>& buckets);
  TensorId make_room(const char* name, DType dtype, Runs Coded::*runs, bool of_values);
  void read_codes();
  std::vector<Piece> pieces_of(const Runs& runs, const Shard& shard) const;
  TensorId view(TensorId flat, std::int64_t first, std::int64_t size);

  Program& program_;
  Rewriter& rewriter_;
  const std::int32_t group_, part_;
  std::map<TensorId, Coded> coded_;  // by the bucket's parameters
  TensorId units_ = kNone, values_ = kNone;
};

}  // namespace quintet
