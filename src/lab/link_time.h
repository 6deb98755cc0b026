// What a message or collective takes by itself on the links it crosses: measured where the machine
// file has it, otherwise from latency and bandwidth by the algorithm that carries it out.
#pragma once

#include "lab/machine.h"
#include "lab/placement.h"
#include "program/backend.h"

namespace quintet {

struct LinkTime {
  OpTime time;
  // Shares of a resource it needs to go at that speed: of the node's way to the network, of one
  // thread of each rank (CPU).
  double network = 0, thread = 0;
};

// `span`: how its ranks lie across the nodes.
LinkTime link_time(const Machine& machine, OpKind kind, const Talk& talk,
                   const Placement::Span& span);

}  // namespace quintet
