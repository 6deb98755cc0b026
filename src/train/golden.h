// Checks the engine against values computed elsewhere: a folder with a model, batches, and the
// loss, gradients and training curves that a reference implementation got from them
// (docs/formats.md, "Golden folders").
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "parallel/communicator.h"
#include "parallel/grid.h"
#include "passes/recompute.h"
#include "program/op_decl.h"

namespace quintet {

struct GoldenOptions {
  DType dtype = DType::kF32;
  Recompute recompute = Recompute::kNone;
  std::int32_t accumulate = 1;  // micro-batches each rank's share of a batch is split into
  LayoutConfig layout;
  Target target;
};

// Largest relative errors accepted. In fp32 only the order of sums differs from the reference. In
// bf16 a value carries 8 bits; the bounds are about twice what the golden cases show.
struct GoldenTolerances {
  double loss, grad_norm, gradient, trace;
  static GoldenTolerances of(DType dtype) {
    return dtype == DType::kF32 ? GoldenTolerances{1e-5, 1e-5, 1e-4, 1e-4}
                                : GoldenTolerances{1e-3, 5e-3, 7e-2, 2e-3};
  }
};

struct GoldenValue {
  std::string name;
  double expected = 0, actual = 0;
  double error = 0;  // relative
};

struct GoldenReport {
  GoldenTolerances tolerances{};
  GoldenValue loss, grad_norm;
  std::vector<GoldenValue> gradients;         // by weight: norms, and |g - g*| / |g*|; worst first
  std::vector<GoldenValue> adamw, adafactor;  // the loss of each step
  bool passed() const;
};

// Called by all ranks of the world together; only rank 0's report is complete.
Result<GoldenReport> check_golden(const Path& folder, const GoldenOptions& options, World& world);

}  // namespace quintet
