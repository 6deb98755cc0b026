// The end of a step: the norm of all gradients, and each unit's update, as ops on the units' flat
// tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/result.h"
#include "program/program.h"

namespace quintet {

struct OptimizerConfig {
  std::string name = "adamw";
  std::string master = "fp32";
  std::string moments = "fp32";  // adamw
  double offload = 0;            // for the offload pass; the update comes in smaller ops then
  double clip_norm = 1.0;
  double weight_decay = 0.0;
  std::vector<std::string> decay_table;  // exceptions (decay_table.h)
  double ema = 0;                        // decay of a running mean of the weights; 0: none is kept
  // AdamW
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  // Adafactor
  double decay_rate = -0.8, epsilon1 = 1e-30, epsilon2 = 1e-3, clip_threshold = 1.0;
  bool scale_parameter = true;

  void list(FieldList& fields);
};

// Appends the update of a program's shards: adds io.learning_rate and io.grad_norm, the optimizer's
// state as resident tensors, and the ops. The master weights are the float32 working copy itself,
// or a tensor of their own where the working copy is bf16. `world` are all ranks: the gradient's
// norm is taken over the whole model. `seed` is that of the random bits by which small moments are
// rounded. `limited` adds io.limits: a step above them updates nothing.
void emit_update(Program& program, const OptimizerConfig& config,
                 const std::vector<std::int32_t>& world, std::uint64_t seed, bool limited);

// Whether a unit's update depends on nothing but its own gradient, neither on the norm of all nor
// on a limit. (A norm that is not finite ends the run either way; what such a step did is lost.)
bool is_unconditional(const OptimizerConfig& config, bool limited);

// Refuses keys without effect.
Status validate(const OptimizerConfig& config);

}  // namespace quintet
