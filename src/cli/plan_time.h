// The part of `quintet plan` that needs a machine: predicted time, and the best layouts.
#pragma once

#include "base/json.h"
#include "lab/best_layout.h"
#include "lab/simulate.h"

namespace quintet {

// For people: step time, rates, the time breakdown, what the prediction rests on.
void print_time(const Simulation& simulation, const Machine& machine);
// The keys that --machine adds to the JSON of a plan.
Json time_json(const Simulation& simulation, const Machine& machine);

void print_search(const LayoutSearch& search, const Machine& machine, double seconds);
Json search_json(const LayoutSearch& search);

}  // namespace quintet
