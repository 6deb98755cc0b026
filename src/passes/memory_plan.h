// The last pass: gives every tensor its place. Lifetimes follow from the order of the ops, places
// from the lifetimes; the arena's size is the peak, known before a byte is allocated.
#pragma once

#include "program/backend.h"
#include "program/op_decl.h"
#include "program/program.h"

namespace quintet {

// Adds the workspaces that ops want of the backend, then sets Tensor::offset of every tensor that
// is used and Program::arena_bytes and Program::target.
void plan_memory(Program& program, const Backend& backend);

// The same for a program that runs between two steps of another, in the same arena: parameters are
// where that one has them, all else is where nothing of it outlives a step. Both must be programs
// of the same rank, layout and model. The arena has to have the larger of both sizes.
void plan_memory_beside(Program& program, const Program& step, const Backend& backend);

}  // namespace quintet
