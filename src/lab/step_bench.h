// Measures one training step against what the machine can do: the whole step, each kind of op, and
// the ceiling, which is the device's own matrix product on the very shapes that the step
// multiplies, all in one run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/dry_run.h"
#include "train/step_program.h"

namespace quintet {

struct KindCost {
  std::string kind;
  std::int64_t ops = 0;  // of one step
  double seconds = 0;    // of one step
  double flops = 0;
  double bytes = 0;  // each operand once
};

struct StepBench {
  double seconds = 0;  // median of the repetitions
  double fastest = 0;
  double tokens = 0;
  double flops = 0;            // of the model
  double ceiling_flops = 0;    // a second, on the step's own product shapes
  double product_seconds = 0;  // what the products alone would take at that rate
  double copy_bytes = 0;       // a second, read and written, of a large copy
  DryRun plan;
  std::int64_t predicted_bytes =
      0;  // of the device's memory: the arena and what comes with a device
  std::int64_t measured_bytes = 0;  // as the device has it; 0 on the CPU
  double square_flops = 0;          // a second, of a large square product in bf16: on a device
  std::vector<KindCost> kinds;      // by time, most first
};

// The seconds of a step, and nothing else: up to so many repetitions, or about so long.
struct StepTimes {
  double median = 0, fastest = 0, slowest = 0;
  std::int64_t device_bytes = 0;  // in use on the device; 0 on the CPU
};
Result<StepTimes> time_steps(const StepOptions& options, int repetitions, double seconds);

Result<StepBench> bench_step(const StepOptions& options, int repetitions);

}  // namespace quintet
