// Small passes that put a program in order once all ops are there.
#pragma once

#include "program/program.h"

namespace quintet {

// Every op that accumulates reads what it adds to. The first one of the program to write a tensor
// has nothing to add to: its addend goes, and no buffer needs to be zeroed.
void drop_first_addends(Program& program);

// Orders ops on different streams wherever data makes it necessary: a reader after the writer, a
// writer after earlier readers and writers. Waits that order nothing new are left out.
void insert_waits(Program& program);

// Removes tensors that nothing refers to any more, such as the weights of other pipeline stages.
void remove_unused_tensors(Program& program);

}  // namespace quintet
