// The host's part of largest.cuh.
#pragma once

#include "program/ops/quantize.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernel.h"

namespace quintet::cuda {

// The slots of an op that was asked for its result's largest, empty; null if it was not.
inline std::uint32_t* empty_slots(const OpContext& op, int slot, DType dtype) {
  auto* slots = op.out_data<std::uint32_t>(slot);
  if (slots == nullptr) return nullptr;
  QT_CHECK(dtype == DType::kBF16, "the largest magnitude of {}", name_of(dtype));
  QT_CUDA(cudaMemsetAsync(slots, 0, quantize::kSlots * sizeof *slots, op.stream()));
  return slots;
}

}  // namespace quintet::cuda
