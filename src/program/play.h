// Plays the programs of all ranks against each other: the one engine behind the proof that they fit
// together (verify_all_ranks in train/step_program.h) and the prediction of their time
// (lab/simulate.h).
//
// It reads them strictly: ops of a stream one after the other, each once everything it waits for is
// done; a message or collective goes on only when all its sides have come to it. What happens next
// depends on nothing but that. Without a clock everything takes no time; with one, the clock says
// what ends next.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"

namespace quintet {

// What matters of a program to a play.
struct RankTrace {
  struct Item {
    enum class What : std::uint8_t { kCompute, kCollective, kSend, kRecv };
    What what = What::kCompute;
    Stream stream = Stream::kCompute;
    OpKind kind{};
    DType dtype = DType::kF32;              // of what is sent
    Reduction reduction = Reduction::kSum;  // of a collective that reduces
    std::int32_t micro_batch = -1;          // what a collective is about, with `unit`
    std::string unit;                       // by name: other ranks may number theirs otherwise
    std::int32_t group = -1;                // index into groups
    std::int32_t peer = -1, tag = -1;
    std::int64_t bytes = 0;
    // Its op in the program. Computations that follow each other, with nobody waiting between
    // them, are one item where every op is there: of those on its stream from `first_op` to `op`.
    std::int32_t first_op = -1, op = -1;
    std::vector<std::int32_t> waits;  // earlier items
    // Whether two ranks do the same, whatever their ops' numbers.
    bool operator==(const Item& other) const;
  };
  std::int32_t rank = 0;
  std::vector<std::vector<std::int32_t>> groups;
  std::vector<Item> items;
};

// How a program is turned into items.
struct TraceScope {
  // All of the computation; else only what waits for others or is waited for, which is enough
  // where nothing takes time.
  bool every_op = false;
  // Communication is issued by the loop that computes, when it comes to it (Backend).
  bool issued_in_order = false;
};
RankTrace trace_of(const Program& program, TraceScope scope = {});

// The trace with ranks renamed. Renaming several ranks to one folds a symmetric world: members of a
// group that become the same rank count once.
RankTrace renamed(RankTrace trace, const std::function<std::int32_t(std::int32_t)>& name);

// One rank's part in something: indices into the traces and into their items.
struct Side {
  std::int32_t rank = 0, item = 0;
};

class Clock {
 public:
  virtual ~Clock() = default;
  // A rank has come to a message or collective, and may have to wait for its other sides.
  virtual void came(Side side) = 0;
  // All sides are there: `id` goes on until next() says that it has ended.
  virtual void start(std::int32_t id, std::span<const Side> sides) = 0;
  // Time passes until something ends; nothing if nothing is under way.
  virtual std::optional<std::int32_t> next() = 0;
};

// What goes wrong, one sentence each; empty when every rank comes to its end.
std::vector<std::string> play(const std::vector<RankTrace>& ranks, Clock* clock = nullptr);

}  // namespace quintet
