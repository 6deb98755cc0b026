// The float32 weights an optimizer updates, in one of three forms: float32 that is the working copy
// itself; float32 beside a working copy in another type; or a bf16 working copy and the 16 bits it
// lacks (base/remainder.h).
#pragma once

#include "base/remainder.h"
#include "runtime/cpu/kernel.h"

namespace quintet::cpu {

template <class W>
struct FullMaster {
  float* full;
  W* working;  // null where `full` is the working copy
  float load(std::int64_t i) const { return full[i]; }
  void store(std::int64_t i, float value) const {
    full[i] = value;
    if (working != nullptr) working[i] = static_cast<W>(value);
  }
};

struct SplitMaster {
  std::int16_t* remainder;
  bf16* working;
  float load(std::int64_t i) const {
    return static_cast<float>(SplitFloat(working[i], remainder[i]));
  }
  void store(std::int64_t i, float value) const {
    const SplitFloat split(value);
    working[i] = split.high;
    remainder[i] = split.low;
  }
};

// A running mean of the weights, if one is kept.
struct Ema {
  float* mean;
  float decay;
  void add(std::int64_t i, float weight) const { mean[i] = decay * mean[i] + (1 - decay) * weight; }
};

// Calls body(master) for the master in an op's slots: the one it reads, and the working copy it
// writes, if there is one.
template <class Body>
void with_master(const OpContext& op, int in_slot, int in_working, int out_working,
                 const Body& body) {
  if (op.in(in_slot).dtype == DType::kI16) {
    body(SplitMaster{const_cast<std::int16_t*>(op.in_data<std::int16_t>(in_slot)),
                     const_cast<bf16*>(op.in_data<bf16>(in_working))});
    return;
  }
  auto* full = const_cast<float*>(op.in_data<float>(in_slot));  // updated in place
  if (!op.has_out(out_working)) {
    body(FullMaster<float>{full, nullptr});
  } else {
    with_float_type(op.out(out_working).dtype, [&]<class W>(W) {
      body(FullMaster<W>{full, op.out_data<W>(out_working)});
    });
  }
}

}  // namespace quintet::cpu
