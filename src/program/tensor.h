// A tensor of a program: what it is, not where its bytes are until the memory plan has run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"

namespace quintet {

using TensorId = std::int32_t;
inline constexpr TensorId kNone = -1;  // an optional slot left empty

// What a tensor is for. Memory is accounted by these classes.
enum class Storage : std::uint8_t {
  kParameter,   // working copy of the weights, kept between steps
  kGradient,    // accumulated over the micro-batches of one step
  kOptimizer,   // master weights and moments, kept between steps
  kActivation,  // values and their gradients
  kWorkspace,   // scratch of one op
  kComm,        // buffers that collectives and copies fill
  kIo,          // batches and scalars the host writes, results it reads
  kHost,        // lives in pinned host memory (offload)
  kCache,       // kept from run to run: generation's keys and values, guesses at units (quantize.h)
};
inline constexpr int kStorageCount = 9;

constexpr std::string_view name_of(Storage storage) {
  constexpr std::string_view kNames[kStorageCount] = {"parameter",  "gradient",  "optimizer",
                                                      "activation", "workspace", "comm",
                                                      "io",         "host",      "cache"};
  return kNames[static_cast<int>(storage)];
}

// Whether the bytes must stay where they are from the beginning of a step to its end: because they
// outlive it, or because the host writes them before it and reads them after it.
constexpr bool is_resident(Storage storage) {
  return storage == Storage::kParameter || storage == Storage::kOptimizer ||
         storage == Storage::kIo || storage == Storage::kHost || storage == Storage::kCache;
}

struct Tensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  Storage storage = Storage::kActivation;

  // A view is a contiguous part of another tensor, which is never itself a view.
  TensorId base = kNone;
  std::int64_t base_offset = 0;  // bytes into the base

  TensorId grad = kNone;         // for a parameter: where its gradient is accumulated
  bool per_micro_batch = false;  // an io tensor of which each micro-batch has its own part

  // Bytes into the arena, or into host memory for kHost; set by the memory plan, for bases only.
  std::int64_t offset = -1;

  std::int64_t bytes() const { return shape.numel() * size_of(dtype); }
};

}  // namespace quintet
