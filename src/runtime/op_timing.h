// When an op ran: what executors measure and the simulator computes.
#pragma once

#include "program/op.h"

namespace quintet {

// In seconds since its step began, and how long the rank stood still before it.
struct OpTiming {
  double start = 0, end = 0;
  double blocked = 0;    // waiting for another op to finish before this one could start
  OpId blocked_by = -1;  // the last of them
  double talking = 0;    // of the rank's own time in this op, spent on communication
};

}  // namespace quintet
