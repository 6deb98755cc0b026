// What a program has to know of whatever will run it: a value that each runtime gives of itself
// (runtime/backend.h), without its libraries. The memory plan, the dry run, the time breakdown,
// traces and the simulator ask it; nothing under program/ knows one device from another.
#pragma once

#include <cstdint>
#include <string_view>

#include "program/program.h"

namespace quintet {

// How ranks carry out a piece of communication. What is timed and counted follows from it.
enum class Algorithm : std::uint8_t {
  kNone,            // says nothing to anybody
  kMessage,         // one rank to another
  kHostCopy,        // between the device and its host's memory
  kOneRound,        // everybody sends all of it to everybody and reduces what came
  kGather,          // everybody sends its part to everybody
  kExchange,        // everybody sends each member that member's part and reduces its own
  kExchangeGather,  // that, then the reduced parts are gathered
  kRing,            // parts go around, N-1 steps of 1/N each; twice for an all-reduce
};
constexpr std::string_view name_of(Algorithm algorithm) {
  constexpr std::string_view kNames[] = {"none",   "message",  "host copy",           "one round",
                                         "gather", "exchange", "exchange and gather", "ring"};
  return kNames[static_cast<int>(algorithm)];
}

// What one op makes its rank say to others, or to its host's memory.
struct Talk {
  Algorithm algorithm = Algorithm::kNone;
  std::int64_t members = 1;     // of the group that takes part
  std::int64_t bytes_sent = 0;  // by this rank
  std::int64_t rounds = 0;      // times that all members wait for each other
  // Bytes of the group's operand: what is reduced or gathered, whole.
  std::int64_t bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Target& target() const = 0;
  // Scratch bytes an op needs in the arena.
  virtual std::int64_t scratch_bytes(const OpView& op) const = 0;
  virtual Talk talk(const OpView& op) const = 0;
  // Bytes of the device's memory that the runtime takes beside the arena.
  virtual std::int64_t bytes_beside_arena(const Program& program) const = 0;
  // Whether copies to and from host memory go on beside the computation.
  virtual bool copies_beside_computation() const = 0;
  // Whether every run times its ops. Elsewhere a run that does takes longer than one that does not.
  virtual bool times_every_run() const = 0;
  // Whether one loop computes and issues communication, in the program's order: what stands behind
  // a computation does not begin before it.
  virtual bool issues_in_order() const = 0;
};

// Bytes that this rank sends to others, or to host memory or from it; 0 for plain computation.
inline std::int64_t bytes_sent_by(const Backend& backend, const Program& program, const Op& op) {
  return backend.talk({program, op}).bytes_sent;
}

}  // namespace quintet
