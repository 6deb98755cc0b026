// How our collectives go over MPI (mpi_world.cpp), as far as planning needs to know: what is sent
// by which algorithm, and the scratch memory that takes.
#pragma once

#include <cstdint>

#include "program/backend.h"

namespace quintet {

// All-reduces of at most this many bytes are done in one round: everybody sends everything to
// everybody. Beyond, each member sums its part and the parts are gathered, which moves the least.
inline constexpr std::int64_t kOneRoundBytes = 4096;

// Bytes that member `index` of an all-reduce sends.
std::int64_t all_reduce_bytes_sent(std::int64_t count, std::int64_t element, std::int64_t members,
                                   std::int64_t index);

Talk mpi_talk(const OpView& op);

// Reductions receive the parts of all members before they add them up, in the order of the group:
// the same bits on every member and in every run. 0 for ops that reduce nothing.
std::int64_t mpi_scratch_bytes(const OpView& op);

}  // namespace quintet
