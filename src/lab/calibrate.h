// Measures a machine into a machine file: ops by themselves, copies, launches, what going on at the
// same time costs, and the links between ranks. No whole step is ever run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/machine.h"
#include "parallel/communicator.h"
#include "program/op_decl.h"

namespace quintet {

struct CalibrateOptions {
  std::string out;  // read first if it is there: what it has is not measured again
  std::string name;
  std::vector<std::string> models;
  std::vector<std::int64_t> micro_batches;
  std::vector<std::string> optimizers;  // "adamw", "adafactor+remainder", "adamw+remainder+8bit"
  std::int64_t accumulate = 1, tp = 1;
  std::int64_t source = 1024, target = 256;
  std::string precision = "bf16";
  bool grid = true;  // products of many sizes, for models that were not named
  Target device;
  double limit = 0;  // seconds after which to stop, with what there is; 0: none
};

// What models' steps are made of, on one rank.
Status calibrate_ops(const CalibrateOptions& options);
// What ranks take to talk to each other, and to compute side by side; into a file that has ops
// already. Called by all ranks together.
Status calibrate_links(const CalibrateOptions& options, World& world);

}  // namespace quintet
