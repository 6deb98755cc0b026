// Proves that a program may be executed. It reads the finished program alone and shares nothing
// with the passes that made it but the definition of order (ordering.h), so that a mistake of
// theirs is found here and not in a loss curve.
//
// For one rank:
//   1. every slot names a tensor, every view lies in its base, results have the shapes their op
//   declares;
//   2. whatever an op reads was written before, all of it, and the writer is ordered before the
//   reader
//      (by stream order and waits; the position in the list orders nothing across streams);
//   3. after planning: tensors lie inside the arena, and no op writes memory that another tensor
//   still
//      needs. The only sharing allowed is the one an op's declaration permits (`in_place`).
//
// How the programs of several ranks fit together is play.h's business.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace quintet {

// What is wrong, one sentence each; empty when the program is sound. Stops after a few findings.
std::vector<std::string> verify(const Program& program);

}  // namespace quintet
