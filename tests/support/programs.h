// Programs that several tests start from.
#pragma once

#include <omp.h>

#include "train/step_program.h"

namespace quintet::testing {

inline T5Config tiny_model() {
  T5Config config = preset("tiny").value();
  config.vocab_size = 160;
  return config;
}

// A small training step: every op kind of the model, two encoder and two decoder layers.
inline StepOptions tiny_step() {
  StepOptions options;
  options.model = tiny_model();
  options.batch = {2, 9, 5, true};
  options.target.threads = 2;
  return options;
}

}  // namespace quintet::testing
