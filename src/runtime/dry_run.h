// What a program takes, without running it: memory by class, arithmetic, traffic. Reads the same
// program the executors run, so the figures are theirs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "program/program.h"

namespace quintet {

struct DryRun {
  std::int64_t arena_bytes = 0;  // what an executor allocates: the peak, to the byte
  std::int64_t host_bytes = 0;   // what it allocates in host memory beside it
  // Bytes of each class alive at the peak; with `unused` they add up to arena_bytes.
  std::array<std::int64_t, kStorageCount> at_peak{};
  std::int64_t unused = 0;  // lost to alignment and to holes between lifetimes
  OpId peak_op = -1;        // where the most is alive
  std::string peak_op_text;
  std::array<std::int64_t, kStorageCount> highest{};  // each class at its own highest point

  double flops = 0;            // matrix products of the model, without recomputation
  double recompute_flops = 0;  // what recomputation adds
  std::int64_t ops = 0;
};

DryRun dry_run(const Program& program);

// "65.10 GiB of memory", and how much of the host's beside it if there is any.
std::string memory_text(const DryRun& run);

}  // namespace quintet
