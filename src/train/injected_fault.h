// Faults on order, for trials of what a run does when something breaks (bench/faults, tests): the
// environment variable QUINTET_FAULT = "KIND RANK STEP" makes that rank fail at that step. Kinds:
// throw (an exception), memory (std::bad_alloc), hang (the main thread stops for ever), exit (the
// process ends without a word), kill (SIGKILL), stop (SIGSTOP), stall (the main thread stops while
// it is waiting for others). "KIND RANK STEP FILE" does so once: where FILE is there already,
// nothing happens, else it is made.
#pragma once

#include <cstdint>

#include "data/batch.h"

//
// QUINTET_FAULT = "noise -1 BATCH" is about data, and so the same under every layout: the labels of
// that batch (from 1, of the global batch's size) are random words. "nan -1 BATCH": its loss is
// reported as NaN.
namespace quintet {

// Do nothing unless the variable is set and names this rank and step; the second is for where a
// rank says that it waits for others.
void inject_fault(std::int32_t rank, std::int64_t step);
void inject_stall(std::int32_t rank, std::int64_t step);
// Does `kind` happen to the global batch that begins with this sample?
bool data_fault(const char* kind, std::int64_t first_sample, std::int64_t global_batch);
// Random labels for a micro-batch whose first sample this is.
void scramble(Batch& batch, std::int64_t first_sample, std::int64_t vocabulary);

}  // namespace quintet
