// Proves that the programs of all ranks fit together: every send has its receive, every collective
// is issued by all of its members in the same order and with the same sizes, and no rank can wait
// for ever.
//
// It plays the programs against each other under the strictest reading of them: ops of a stream one
// after the other, a message or collective complete only when all its sides have come to it. What
// each op does next depends on nothing but what it waits for, so if this one execution reaches the
// end, every one does; if it gets stuck, so may a real run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "program/program.h"

namespace quintet {

// What matters of a program to other ranks: its communication, and the computation that it is
// ordered with.
struct RankTrace {
  struct Item {
    enum class What : std::uint8_t { kCompute, kCollective, kSend, kRecv };
    What what = What::kCompute;
    Stream stream = Stream::kCompute;
    OpKind kind{};
    std::int32_t group = -1;  // index into groups
    std::int32_t peer = -1, tag = -1;
    std::int64_t bytes = 0;
    std::int32_t op = -1;             // in the program, for messages
    std::vector<std::int32_t> waits;  // earlier items
    bool operator==(const Item& other) const {
      return what == other.what && stream == other.stream && kind == other.kind &&
             group == other.group && peer == other.peer && tag == other.tag &&
             bytes == other.bytes && waits == other.waits;
    }
  };
  std::int32_t rank = 0;
  std::vector<std::vector<std::int32_t>> groups;
  std::vector<Item> items;
};

RankTrace trace_of(const Program& program);

// The trace with ranks renamed. Renaming several ranks to one folds a symmetric world: members of a
// group that become the same rank count once.
RankTrace renamed(RankTrace trace, const std::function<std::int32_t(std::int32_t)>& name);

// What is wrong, one sentence each; empty when the programs fit together.
std::vector<std::string> verify_world(const std::vector<RankTrace>& ranks);

}  // namespace quintet
