// Which samples make up which batch: a run of micro-batches takes the samples in order, whatever
// the number of data-parallel ranks; each rank asks for its share of every step.
#pragma once

#include <cstdint>

namespace quintet {

struct BatchPlan {
  std::int64_t micro_batch = 1;    // sequences of a micro-batch
  std::int64_t accumulate = 1;     // micro-batches that a rank runs in a step
  std::int64_t data_parallel = 1;  // ranks that share a step's samples

  std::int64_t global_batch() const { return micro_batch * accumulate * data_parallel; }
  // The first of the micro_batch samples of micro-batch `micro` of `step` on data-parallel rank
  // `rank`. Pipeline and tensor peers have the same rank here, and so the same samples.
  std::int64_t first_sample(std::int64_t step, std::int64_t micro, std::int64_t rank) const {
    return step * global_batch() + (micro * data_parallel + rank) * micro_batch;
  }
  // The same for a rank's batches counted through: batch 0, 1, ... from `first_step` on.
  std::int64_t first_sample_of(std::int64_t batch, std::int64_t rank,
                               std::int64_t first_step = 0) const {
    return first_sample(first_step + batch / accumulate, batch % accumulate, rank);
  }
};

}  // namespace quintet
